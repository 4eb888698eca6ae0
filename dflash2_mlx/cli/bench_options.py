"""The options that only `bench` has, and how their words become values. Knows typer only."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

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


DraftV1 = Annotated[
    str | None,
    typer.Option("--draft-v1", help="A DFlash 1 drafter of the same target, compared too.", rich_help_panel=_WHAT),
]
WorkloadNames = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        help="Only this workload; may repeat. Default: all; for sweep four of them.",
        rich_help_panel=_WHAT,
    ),
]
DatasetName = Annotated[
    str | None,
    typer.Option(
        "--dataset", help="gsm8k, math500, humaneval, mbpp or mt-bench instead, from the Hub.", rich_help_panel=_WHAT
    ),
]
Rows = Annotated[int, typer.Option("--rows", min=1, help="Rows of the data set.", rich_help_panel=_WHAT)]
Thinking = Annotated[
    str, typer.Option("--thinking", help="off, on (the template's default), or both.", rich_help_panel=_WHAT)
]
Contexts = Annotated[
    str | None,
    typer.Option(
        "--context", help="Prompt lengths, say 512,2k,32k: a log fills each prompt up.", rich_help_panel=_WHAT
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option("--length", help="Answer lengths at most, say 64,256,1k. Default: the workload's.",
                 rich_help_panel=_WHAT),
]  # fmt: skip
ExactLength = Annotated[
    bool, typer.Option("--exact-length", help="Go on past the end of an answer to the limit.", rich_help_panel=_WHAT)
]
Repeats = Annotated[
    int | None,
    typer.Option("--repeats", "-r", min=1, help="Timed passes after the warm-up. Default: 5.", rich_help_panel=_HOW),
]
Temperature = Annotated[float, typer.Option("--temperature", "--temp", "-t", help="0 = greedy.", rich_help_panel=_HOW)]
Seed = Annotated[
    int, typer.Option("--seed", help="Of sampled answers, the same for all methods.", rich_help_panel=_HOW)
]
Quick = Annotated[
    bool, typer.Option("--quick", help="One conversation a workload, short, 2 repeats.", rich_help_panel=_HOW)
]
ReportFolder = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Write report.md, .html, .json, CSV and PNG there.",
        callback=_report_folder,
        rich_help_panel=_OUTPUT,
    ),
]
BlockSizes = Annotated[
    str | None,
    typer.Option("--block-sizes", help="Which, say 1,2,4,8. Default: 2 to the drafter's own.", rich_help_panel=_WHAT),
]
BaseUrl = Annotated[str, typer.Option("--base-url", help="The server, say http://127.0.0.1:8000/v1.")]
ServerModel = Annotated[
    str | None, typer.Option("--model", "-m", help="The model's name there. Default: the first that it lists.")
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="DFLASH2_API_KEY", help="Sent as a bearer token.", show_envvar=True)
]
Clients = Annotated[str, typer.Option("--clients", "-c", help="Clients at once, level by level.")]
Requests = Annotated[int, typer.Option("--requests", min=1, help="Requests of every client.")]
LoadTokens = Annotated[int, typer.Option("--max-tokens", "-n", min=1, help="At most so many tokens an answer.")]
CheckTokens = Annotated[
    int, typer.Option("--max-tokens", "-n", min=1, help="At most so many tokens an answer.", rich_help_panel=_HOW)
]
CheckContext = Annotated[
    int, typer.Option("--context", min=1, help="Prompt tokens of the long prompts.", rich_help_panel=_HOW)
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="How many seeds are tried.", rich_help_panel=_HOW)]
Margin = Annotated[
    float | None,
    typer.Option(
        "--margin",
        min=0.0,
        callback=_number,
        help="Lead (logits) up to which another token is rounding. Default: 0.001 for float32 on the CPU, else 0.25.",
        rich_help_panel=_HOW,
    ),
]
Minutes = Annotated[
    float, typer.Option("--minutes", min=0.01, callback=_number, help="How long.", rich_help_panel=_HOW)
]
Before = Annotated[Path, typer.Argument(metavar="A.json", help="stdout or report.json of `bench run`, before.")]
After = Annotated[Path, typer.Argument(metavar="B.json", help="The same, after.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 where something got worse.")]


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
