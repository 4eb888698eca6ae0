"""What only a real Mac can tell: does drafting change the text, which block size is best, how fast is it.

`scripts/mac_check` installs everything and runs this; `python scripts/mac_check.py --model demo --quick` takes a minute
anywhere. Writes mac_check.md and mac_check.json, made to be pasted into an issue. Exit 1 where a text differs by more
than rounding, or where the pair does not fit.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from first_run import PROMPTS

from dflash2_mlx import __version__
from dflash2_mlx.api import Answer, generate, load
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.loading.pair import Pair

GREEDY = SamplingParams()
WATCHED = SamplingParams(logprobs=5)  # the plain run's likeliest tokens, to judge a first difference by
ROUNDING_16_BIT, ROUNDING_32_BIT = 0.5, 1e-3  # margins of log-probability that rounding can turn over
WIDEST = 8
LONG_PROMPT = "Summarise this in one sentence: " + "The train was late, so we walked to the river and talked. " * 80
WARM_TOKENS = 8


@dataclass(frozen=True)
class Depth:
    """How much is measured."""

    prompts: int
    tokens: int
    minutes: float


@dataclass(frozen=True)
class Comparison:
    """Drafted against plain text of one prompt. At the first difference: how far the plain run's choice was ahead of
    its second one, and which of its choices (1 = first) the drafted run took instead, None = none of the first five.
    """

    prompt: str
    tokens: int
    first_difference: int | None
    margin: float | None
    rank: int | None
    verdict: str


@dataclass(frozen=True)
class Width:
    """Answers at one block size; rate in tok/s."""

    block_size: int
    rate: float
    tokens_per_round: float
    acceptance: float


@dataclass(frozen=True)
class Timing:
    """Medians of one prompt, drafted at the default block size and plain, turn and turn about."""

    prompt: str
    prompt_tokens: int
    tokens: int
    runs: int
    drafted: float
    plain: float
    ratio: float
    tokens_per_round: float
    prefill: float
    first_token_s: float
    peak_bytes: int


def answer(pair: Pair, prompt: str, tokens: int, rows: int | None, sampling: SamplingParams = GREEDY) -> Answer:
    """A greedy answer with blocks of `rows` rows; 1 = plain, None = the default."""
    reasoning = "off" if "off" in pair.chat.levels else None
    engine = EngineParams(max_tokens=tokens, block_size=rows)
    return generate(pair, prompt, sampling=sampling, engine=engine, text=TextParams(reasoning=reasoning))


def rounding_limit(pair: Pair) -> float:
    """The margin below which a difference is rounding, for this target's precision."""
    import mlx.core as mx

    exact = pair.target.embed(mx.array([0])).dtype == mx.float32 and not pair.target.quantized
    return ROUNDING_32_BIT if exact else ROUNDING_16_BIT


def compare(pair: Pair, prompt: str, tokens: int) -> Comparison:
    """Drafted and plain text of one prompt, token for token."""
    drafted = answer(pair, prompt, tokens, None).tokens
    plain = answer(pair, prompt, tokens, 1, WATCHED)
    both = zip(drafted, plain.tokens, strict=False)
    where = next((i for i, (ours, theirs) in enumerate(both) if ours != theirs), None)
    if where is None:
        same = len(drafted) == len(plain.tokens)
        return Comparison(prompt, len(plain.tokens), None, None, None, "same" if same else "BUG: lengths differ")
    top = plain.logprobs[where].top
    margin = top[0][1] - top[1][1]
    rank = next((i + 1 for i, (token, _) in enumerate(top) if token == drafted[where]), None)
    close = rank is not None and top[0][1] - top[rank - 1][1] < rounding_limit(pair)
    verdict = "rounding" if close else "BUG: the margin is too large for rounding"
    return Comparison(prompt, len(plain.tokens), where, margin, rank, verdict)


def sweep(pair: Pair, prompts: tuple[str, ...], tokens: int) -> list[Width]:
    """Rates at every block size the drafter knows, up to 8."""
    assert pair.drafter is not None
    rows = []
    for size in range(1, min(WIDEST, pair.drafter.block_size) + 1):
        answer(pair, prompts[0], WARM_TOKENS, size)
        answers = [answer(pair, prompt, tokens, size).summary for prompt in prompts]
        rate = statistics.median(summary.decode_rate for summary in answers)
        rounds, drafted = sum(s.rounds for s in answers), sum(s.drafted for s in answers)
        accepted = sum(summary.accepted for summary in answers)
        per_round = sum(s.tokens_per_round * s.rounds for s in answers) / rounds if rounds else 1.0
        rows.append(Width(size, rate, per_round, accepted / drafted if drafted else 0.0))
        print(f"  block size {size}: {rate:.1f} tok/s, {per_round:.2f} tokens per round", flush=True)
    return rows


def benchmark(pair: Pair, prompts: list[str], depth: Depth) -> list[Timing]:
    """Every prompt, drafted and plain, again and again until the time is up; at least once."""
    runs: dict[str, tuple[list[Answer], list[Answer]]] = {prompt: ([], []) for prompt in prompts}
    ends = time.monotonic() + 60 * depth.minutes
    while True:
        for prompt, (drafted, plain) in runs.items():
            if plain and time.monotonic() > ends:
                return [timing(prompt, *answers) for prompt, answers in runs.items()]
            drafted.append(answer(pair, prompt, depth.tokens, None))
            plain.append(answer(pair, prompt, depth.tokens, 1))


def timing(prompt: str, drafted: list[Answer], plain: list[Answer]) -> Timing:
    """Medians over the runs of one prompt."""
    fast, slow = (statistics.median(a.summary.decode_rate for a in answers) for answers in (drafted, plain))
    last = drafted[-1].summary
    return Timing(
        prompt=prompt[:60],
        prompt_tokens=last.prompt_tokens,
        tokens=last.completion_tokens,
        runs=len(drafted),
        drafted=fast,
        plain=slow,
        ratio=fast / slow,
        tokens_per_round=last.tokens_per_round,
        prefill=statistics.median(a.summary.prefill_rate for a in drafted),
        first_token_s=statistics.median(a.summary.first_token_s for a in drafted),
        peak_bytes=max(a.summary.peak_bytes for a in (*drafted, *plain)),
    )


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`dflash2-mlx ARGUMENTS`; stderr goes to the terminal."""
    words = [sys.executable, "-m", "dflash2_mlx", *arguments]
    return subprocess.run(words, stdout=subprocess.PIPE, text=True)


def examine(names: list[str]) -> tuple[dict[str, object], str, bool]:
    """Doctor's document and words without the owner's paths, and whether the pair can run."""
    told, document = command("doctor", *names), command("doctor", *names, "--json")
    content = json.loads(document.stdout) if document.stdout else {}
    content.get("machine", {}).pop("cache_folder", None)
    words = "\n".join(line for line in told.stdout.splitlines() if not line.startswith("cache "))
    return content, words.replace(str(Path.home()), "~"), document.returncode == 0


def to_fetch(document: dict[str, object]) -> bool:
    """Whether a part of the pair is not on this machine."""
    pair = document.get("pair")
    return isinstance(pair, dict) and bool(pair.get("todo"))


def markdown(report: dict[str, object], words: str) -> str:
    """The report for people."""
    lines = [f"# mac_check: {report['model']}", "", f"dflash2-mlx {__version__}, {report['date']}", "", "```", words]
    lines += ["```", ""]
    compared, widths, timings = report.get("exactness"), report.get("widths"), report.get("benchmark")
    if isinstance(compared, list):
        lines += ["## Does drafting change the text? (greedy)", "", "| prompt | tokens | verdict |", "|---|---|---|"]
        lines += [f"| {c['prompt']} | {c['tokens']} | {outcome(c)} |" for c in compared]
    if isinstance(widths, list):
        lines += ["", "## Block sizes", "", "| rows | tok/s | against 1 | tokens per round | acceptance |"]
        lines += ["|---|---|---|---|---|"]
        lines += [
            f"| {w['block_size']} | {w['rate']:.1f} | {w['rate'] / widths[0]['rate']:.2f}x | "
            f"{w['tokens_per_round']:.2f} | {w['acceptance']:.0%} |"
            for w in widths
        ]
    if isinstance(timings, list):
        lines += ["", f"## Drafted (block size {report['block_size']}) beside plain decoding, medians", ""]
        lines += [
            "| prompt | tokens in, out | runs | drafted tok/s | plain tok/s | ratio | per round | prefill tok/s |"
        ]
        lines += ["|---|---|---|---|---|---|---|---|"]
        lines += [
            f"| {t['prompt']} | {t['prompt_tokens']}, {t['tokens']} | {t['runs']} | {t['drafted']:.1f} "
            f"| {t['plain']:.1f} | {t['ratio']:.2f}x | {t['tokens_per_round']:.2f} | {t['prefill']:.0f} |"
            for t in timings
        ]
        peak = max(t["peak_bytes"] for t in timings)
        lines += ["", f"Peak memory of MLX: {peak / 2**30:.2f} GiB."]
    return "\n".join([*lines, ""])


def outcome(compared: dict[str, object]) -> str:
    """The verdict of one comparison with its numbers."""
    if compared["first_difference"] is None:
        return str(compared["verdict"])
    rank = compared["rank"] or "none of 5"
    return (
        f"{compared['verdict']} (token {compared['first_difference']}, plain margin {compared['margin']:.4f}, "
        f"drafted took choice {rank})"
    )


def measure(pair: Pair, depth: Depth, report: dict[str, object]) -> None:
    """Fill the report: exactness, block sizes, benchmark."""
    prompts = PROMPTS[: depth.prompts]
    warm = answer(pair, prompts[0], depth.tokens, None).summary
    report["block_size"], report["block_size_reason"] = warm.block_size, warm.block_size_reason
    print("exactness: drafted against plain, greedy", flush=True)
    compared = []
    for prompt in prompts:
        compared.append(asdict(compare(pair, prompt, depth.tokens)))
        print(f"  {prompt}: {outcome(compared[-1])}", flush=True)
    report["exactness"] = compared
    print("block sizes", flush=True)
    report["widths"] = [asdict(width) for width in sweep(pair, prompts[:3], depth.tokens)]
    print(f"benchmark, {depth.minutes:g} minutes", flush=True)
    fits = len(LONG_PROMPT) + depth.tokens < pair.target.context_limit  # a token has a character at least
    timed = [*prompts, LONG_PROMPT] if fits else list(prompts)
    report["benchmark"] = [asdict(row) for row in benchmark(pair, timed, depth)]


def write(report: dict[str, object], words: str, folder: Path) -> None:
    """Both files."""
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(report, words)
    (folder / "mac_check.md").write_text(text, encoding="utf-8")
    (folder / "mac_check.json").write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"\n{text}\nWritten to {folder / 'mac_check.md'} and mac_check.json: please paste both into an issue.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3.8-27b", help="alias, folder or repository id (default qwen3.8-27b)")
    parser.add_argument("--draft", help="drafter, where none is known for the model")
    parser.add_argument("--quick", action="store_true", help="two prompts, short answers, ten seconds of benchmark")
    parser.add_argument("--minutes", type=float, default=5.0, help="length of the benchmark (default 5)")
    parser.add_argument("--output", type=Path, default=Path(), help="folder of the report (default: here)")
    parser.add_argument("--force", action="store_true", help="run although doctor says no")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    depth = Depth(2, 32, 1 / 6) if asked.quick else Depth(len(PROMPTS), 128, asked.minutes)
    names = [asked.model, *(["--draft", asked.draft] if asked.draft else [])]
    document, words, able = examine(names)
    if able and to_fetch(document):
        if command("pull", asked.model).returncode:
            return 1
        document, words, able = examine(names)
    print(words, flush=True)
    report: dict[str, object] = {"model": asked.model, "version": __version__, "date": time.strftime("%Y-%m-%d %H:%M")}
    report["doctor"] = document
    if not able and not asked.force:
        write(report, words, asked.output)
        print("mac_check: doctor says no, see above. --force runs all the same.", file=sys.stderr)
        return 1
    measure(load(asked.model, asked.draft, require_draft=True), depth, report)
    write(report, words, asked.output)
    bugs = [entry for entry in report["exactness"] if entry["verdict"].startswith("BUG")]
    print(
        json.dumps({"bugs": len(bugs), "best_block_size": max(report["widths"], key=lambda w: w["rate"])["block_size"]})
    )
    return int(bool(bugs))


if __name__ == "__main__":
    sys.exit(main())
