"""What `make run` shows: the bundled pair answers, then `bench` times every prompt with drafting and without.

`python scripts/first_run.py [--repeat N]`. Exit 1 where a text differs. JSON is the last line where stdout is no
terminal.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from dflash2_mlx.api import load
from dflash2_mlx.bench.environment import describe
from dflash2_mlx.bench.methods import Width, judge_of, methods_of
from dflash2_mlx.bench.report import Ratio
from dflash2_mlx.bench.run import GroupResult, RunPlan, groups_of, run_group
from dflash2_mlx.bench.run_report import decoding, verdict, whole
from dflash2_mlx.bench.workloads import Workload
from dflash2_mlx.config import SamplingParams, TextParams
from dflash2_mlx.events import Delta
from dflash2_mlx.loading.load import Pair
from dflash2_mlx.session.session import Request, Session

PROMPTS = (
    "What is speculative decoding?",
    "Who are you?",
    "Write a Python function that reverses a string.",
    "What is the capital of France?",
    "What is 7 + 12?",
    "Count to ten in Korean.",
    "Say hello in Japanese.",
    "Give me a JSON record of a book.",
    "Tell me a story about a fox.",
    "How do I repair a bicycle?",
)
DRAFTED, PLAIN, MOST_TOKENS = "dflash2", "plain", 256
COLOURS = {1: "green", 0: "", -1: "bold red"}
NEXT = (
    ("chat", "talk to it"),
    ("serve", "the same over HTTP"),
    ("bench run --quick --report out", "more, as a report"),
)


def show(pair: Pair, prompt: str) -> None:
    """Stream one answer to the terminal."""
    print(f"> {prompt}")
    for event in Session(pair).stream(Request(prompt, SamplingParams(), text=TextParams(reasoning="off"))):
        if isinstance(event, Delta):
            print(event.text, end="", flush=True)
    print("\n")


def row(result: GroupResult) -> Text:
    """One prompt's line; a ratio is green where drafting is faster beyond noise, red where it is slower."""
    drafted, plain = (result.methods[name].decode_rate for name in (DRAFTED, PLAIN))
    name = result.workload if len(result.workload) <= 32 else result.workload[:31] + "…"
    text = Text(f"{name:<32} {result.methods[PLAIN].completion_tokens:>6}")
    text.append(f" {plain.median if plain else 0:>6.0f} {drafted.median if drafted else 0:>7.0f}")
    for spread in (result.whole_speedup[DRAFTED], result.speedup[DRAFTED]):
        ratio = Ratio(spread) if spread else None
        text.append(f" {str(ratio) if ratio else '-':>8}", COLOURS[ratio.side if ratio else 0])
    return text.append("  same" if result.same_text else "  DIFFERENT", "" if result.same_text else COLOURS[-1])


def conclude(console: Console, lines: Sequence[str]) -> None:
    """What came out, in words, and what to type next."""
    console.print()
    for line in lines:
        console.print(
            Text(line, COLOURS[-1] if line.startswith(("Slower", "Looks slower")) or "DIFFERS" in line else "")
        )
    command = Path(sys.executable).parent / "dflash2-mlx"
    place = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    console.print("\nNext:")
    for words, why in NEXT:
        console.print(f"  {place} {words:<32}", Text(why, "dim"))


def figures(results: Sequence[GroupResult]) -> dict[str, float | None]:
    """Medians over the prompts; None where no text was the same."""
    found = {
        "ratio": [ratio.median for _, ratio in decoding(results, DRAFTED)],
        "whole_ratio": [ratio.median for _, ratio in whole(results, DRAFTED)],
        "tokens_per_round": [result.methods[DRAFTED].tokens_per_round for result in results],
    }
    return {name: round(statistics.median(values), 3) if values else None for name, values in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="timed answers a prompt and mode (default 5)")
    repeat = max(1, parser.parse_args().repeat)
    console, pair = Console(highlight=False, soft_wrap=not sys.stdout.isatty()), load("demo")
    show(pair, PROMPTS[0])
    where = describe(pair)
    plan = RunPlan(repeat, SamplingParams(), parts=False, judge=judge_of(pair, where))
    workloads = [Workload(prompt, "", MOST_TOKENS, ((prompt,),)) for prompt in PROMPTS]
    console.print(
        f"Every prompt {repeat} times with drafting and {repeat} times without, turn about, on {where.device}."
    )
    console.print(
        "tok/s after the first token, medians; times plain decoding over the whole answer, and after that token:"
    )
    console.print(
        f"{'prompt':<32} {'tokens':>6} {'plain':>6} {'drafted':>7} {'answer':>8} {'decoding':>8}  text", style="bold"
    )
    methods, results = methods_of(pair, None, Width(None)), list[GroupResult]()
    for group in groups_of(workloads, ["off"], [], []):
        results.append(run_group(group, methods, plan))
        console.print(row(results[-1]))
    lines = [
        line for line in verdict(results, where) if not line.startswith(("Faster", "Looks faster"))
    ]  # the table shows these
    conclude(console, lines)
    same = all(result.same_text for result in results)
    if not sys.stdout.isatty():
        print(json.dumps({**figures(results), "same_text": same}))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
