"""The options that only `bench` has, and how their words become values. Knows typer only."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer

from dflash2_mlx.errors import UsageError

_WHAT, _HOW, _OUTPUT = "What is measured", "How", "Output"
_LONGEST, _MOST_CLIENTS = 2**24, 512
_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(k?)", re.ASCII)


def _report_folder(folder: Path | None) -> Path | None:
    """The folder, made and tried before anything is measured. Raises: UsageError."""
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"--report {str(folder)!r} is no folder to write to: {why}. Name another one, or make it writable."
        ) from error


def _number(value: float | None) -> float | None:
    """A number that is one: typer's own bounds let inf pass. Raises: UsageError."""
    if value is not None and not math.isfinite(value):
        raise UsageError(f"{value} is no number to measure by. Give a finite one.")
    return value


def _option(*names: str, help: str, panel: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


DraftV1 = Annotated[
    str | None, _option("--draft-v1", help="A DFlash 1 drafter of the same target, compared too.", panel=_WHAT)
]
WorkloadNames = Annotated[
    list[str] | None,
    _option("--workload", "-w", help="Only this workload; may repeat. Default: all; for sweep four.", panel=_WHAT),
]
DatasetName = Annotated[
    str | None,
    _option("--dataset", help="gsm8k, math500, humaneval, mbpp or mt-bench, from the Hub.", panel=_WHAT),
]
Rows = Annotated[int, _option("--rows", min=1, help="Rows of the data set.", panel=_WHAT)]
Thinking = Annotated[str, _option("--thinking", help="off, on (the template's default), or both.", panel=_WHAT)]
Contexts = Annotated[
    str | None, _option("--context", help="Prompt lengths, say 512,2k,32k: a log fills each prompt up.", panel=_WHAT)
]
Lengths = Annotated[
    str | None, _option("--length", help="Answer lengths at most, say 64,256,1k. Default: the workload's.", panel=_WHAT)
]
ExactLength = Annotated[
    bool, _option("--exact-length", help="Go on past the end of an answer to the limit.", panel=_WHAT)
]
Repeats = Annotated[
    int | None, _option("--repeats", "-r", min=1, help="Timed passes after the warm-up. Default: 5.", panel=_HOW)
]
Temperature = Annotated[float, _option("--temperature", "--temp", "-t", help="0 = greedy.", panel=_HOW)]
Seed = Annotated[int, _option("--seed", help="Of sampled answers, the same for all methods.", panel=_HOW)]
Quick = Annotated[
    bool, _option("--quick", help="One conversation a workload, short, 2 repeats: too few to publish.", panel=_HOW)
]
ReportFolder = Annotated[
    Path | None,
    _option(
        "--report", help="Write report.html, .md, .json, CSV and SVG there.", callback=_report_folder, panel=_OUTPUT
    ),
]
Json = Annotated[
    bool, _option("--json", help="The JSON document on a terminal too; elsewhere it is always there.", panel=_OUTPUT)
]
BlockSizes = Annotated[
    str | None, _option("--block-sizes", help="Which, say 1,2,4,8. Default: 2 to the drafter's own.", panel=_WHAT)
]
BaseUrl = Annotated[str, _option("--base-url", help="The server, say http://127.0.0.1:8000, with or without /v1.")]
ServerModel = Annotated[
    str | None, _option("--model", "-m", help="The model's name there. Default: the first that it lists.")
]
ApiKey = Annotated[
    str | None,
    _option("--api-key", envvar="DFLASH2_MLX_API_KEY", help="Sent as a bearer token.", show_envvar=True),
]
Clients = Annotated[str, _option("--clients", "-c", help="Clients at once, level by level.")]
Requests = Annotated[int, _option("--requests", min=1, help="Requests of every client.")]
RepeatPrompts = Annotated[
    bool, _option("--repeat-prompts", help="The same prompts again and again, which a prefix cache answers sooner.")
]
LoadTokens = Annotated[int, _option("--max-tokens", "-n", min=1, help="At most so many tokens an answer.")]
CheckTokens = Annotated[int, _option("--max-tokens", "-n", min=1, help="At most so many tokens an answer.", panel=_HOW)]
CheckContext = Annotated[int, _option("--context", min=1, help="Prompt tokens of the long prompts.", panel=_HOW)]
Seeds = Annotated[int, _option("--seeds", min=1, help="How many seeds are tried.", panel=_HOW)]
Margin = Annotated[
    float | None,
    _option(
        "--margin",
        min=0.0,
        callback=_number,
        help="Lead (logits) up to which another token is rounding. Default: 0.001 for float32 on the CPU, else 0.25.",
        panel=_HOW,
    ),
]
Minutes = Annotated[float, _option("--minutes", min=0.01, callback=_number, help="How long.", panel=_HOW)]
Before = Annotated[Path, typer.Argument(metavar="A.json", help="JSON or report.json of `bench run`, before.")]
After = Annotated[Path, typer.Argument(metavar="B.json", help="The same, after.")]
Strict = Annotated[bool, _option("--strict", help="Exit 1 where something got worse.")]


def whole_numbers(option: str, text: str | None) -> tuple[int, ...]:
    """`512,2k` as numbers, each once; `k` is 1024. Raises: UsageError naming the option."""
    found = []
    for word in text.split(",") if text is not None else ():
        match = _LENGTH.fullmatch(word.strip().lower())
        value = round(float(match[1]) * (1024 if match[2] else 1)) if match else 0
        if not 1 <= value <= _LONGEST:
            raise UsageError(f"{option} {text!r}: {word.strip()!r} is no length. Give numbers like 512,2k,8k.")
        found.append(value)
    return tuple(dict.fromkeys(found))


def client_counts(text: str) -> tuple[int, ...]:
    """How many clients at once, level by level. Raises: UsageError."""
    counts = whole_numbers("--clients", text)
    if max(counts) > _MOST_CLIENTS:
        raise UsageError(
            f"--clients {text!r}: {max(counts)} is too many for one process. Give at most {_MOST_CLIENTS}."
        )
    return counts


def thinking_words(text: str) -> Sequence[str]:
    """`off`, `on` or `both` as the settings to measure. Raises: UsageError."""
    words = {"off": ("off",), "on": ("on",), "both": ("off", "on")}
    if text not in words:
        raise UsageError(f"--thinking is {text!r}. Give off, on or both.")
    return words[text]
