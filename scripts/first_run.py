"""What `make run` shows: the bundled pair answers, then every prompt is timed with drafting and without.

`python scripts/first_run.py [--repeat N]`. The last line is JSON.
"""

import argparse
import json
import statistics
import sys

from dflash2_mlx.api import Answer, gather, load
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.events import Delta
from dflash2_mlx.memory.machine import probe
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
GREEDY = SamplingParams()
ANSWER_ONLY = TextParams(reasoning="off")


def request(prompt: str, block_size: int | None = None) -> Request:
    return Request(prompt, GREEDY, EngineParams(block_size=block_size), ANSWER_ONLY)


def show(session: Session, prompt: str) -> None:
    """Stream one answer to the terminal."""
    print(f"> {prompt}")
    for event in session.stream(request(prompt)):
        if isinstance(event, Delta):
            print(event.text, end="", flush=True)
    print("\n")


def timed(session: Session, prompt: str, repeat: int) -> tuple[Answer, Answer, float, float]:
    """Drafted and plain answer and their median rates in tok/s, taken turn and turn about.

    One session for all, as in a chat: which widths pay is learnt once, texts are not kept.
    """
    answers: dict[bool, Answer] = {}
    rates: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(repeat):
        for drafted in (True, False):
            answers[drafted] = gather(session.stream(request(prompt, None if drafted else 1)))
            rates[drafted].append(answers[drafted].summary.decode_rate)
    return answers[True], answers[False], statistics.median(rates[True]), statistics.median(rates[False])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="timed answers a prompt and mode (default 5)")
    repeat = max(1, parser.parse_args().repeat)
    session = Session(load("demo"))
    show(session, PROMPTS[0])
    widest = gather(session.stream(request("Hello"))).summary.block_size
    print(f"Greedy, at most {widest} rows a round, on {probe().name}; medians of {repeat}, rates in tok/s:")
    print(
        f"{'prompt':<50} {'tokens':>6} {'per round':>9} {'accepted':>8} {'drafted':>8} {'plain':>7} {'ratio':>6}  text"
    )
    ratios, same_everywhere, per_round = [], True, []
    for prompt in PROMPTS:
        drafted, plain, fast, slow = timed(session, prompt, repeat)
        same = drafted.tokens == plain.tokens
        same_everywhere &= same
        ratios.append(fast / slow)
        per_round.append(drafted.summary.tokens_per_round)
        print(
            f"{prompt:<50} {len(drafted.tokens):>6} {per_round[-1]:>9.2f} {drafted.summary.acceptance:>8.1%} "
            f"{fast:>8.1f} {slow:>7.1f} {ratios[-1]:>5.2f}x  {'same' if same else 'DIFFERENT'}"
        )
    ratio = statistics.median(ratios)
    words = "faster than" if ratio > 1.02 else "no faster than"
    print(f"\nDrafting is {words} plain decoding here: {ratio:.2f}x (median over the prompts).")
    print(
        json.dumps(
            {
                "ratio": round(ratio, 3),
                "same_text": same_everywhere,
                "tokens_per_round": round(statistics.mean(per_round), 3),
            }
        )
    )
    return 0 if same_everywhere else 1


if __name__ == "__main__":
    sys.exit(main())
