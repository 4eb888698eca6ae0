"""Measure a target and its drafter on the held-out prompts; knows the engine, nothing of training.

Usage: python scripts/demo/evaluate.py TARGET DRAFTER CORPUS_DIR [--compare OTHER_DRAFTER]
Prints, kind by kind, how many greedy answers are right, and the tokens per round at both block sizes; the kinds
without one right answer (a story, a letter) are sampled at temperature 1 as well. With --compare, the difference to
another drafter on those, DRAFTER minus OTHER_DRAFTER, with a 95 % interval. The last line is JSON.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dflash2_mlx.bench.numbers import RESAMPLES, draws, interval
from dflash2_mlx.config import EngineParams, LoadParams, SamplingParams
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.events import Round
from dflash2_mlx.loading.load import load_pair

SETTINGS = ("enable_thinking", "reasoning_effort")
BLOCK_SIZES = (5, 8)
WIDEST = BLOCK_SIZES[-1]
LONGEST_ANSWER = 200


@dataclass(frozen=True, slots=True)
class Question:
    """One held-out prompt; `expect` is empty where many answers would be right."""

    kind: str
    prompt: tuple[int, ...]
    expect: str


@dataclass(frozen=True, slots=True)
class Tally:
    """Tokens committed by drafted rounds, and their number."""

    tokens: int = 0
    rounds: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.tokens + other.tokens, self.rounds + other.rounds)

    @property
    def rate(self) -> float:
        """Tokens per round."""
        return self.tokens / max(1, self.rounds)


class Answers:
    """Answers of a target with one drafter."""

    def __init__(self, target: Path, drafter: Path) -> None:
        pair = load_pair(LoadParams(model=str(target.resolve()), draft=str(drafter.resolve())))
        assert pair.drafter
        self._target, self._drafter, self._ends = pair.target, pair.drafter, pair.end_tokens
        self.tokenizer = pair.tokenizer
        self.kind = pair.drafter.config.kind

    def answer(self, prompt: Sequence[int], sampling: SamplingParams, block_size: int) -> tuple[str, Tally]:
        """The answer's text, without its end token, and how it was drafted."""
        params = EngineParams(max_tokens=LONGEST_ANSWER, block_size=block_size, end_tokens=self._ends)
        self._target.reset()
        self._drafter.reset()
        events = list(decode(self._target, self._drafter, Task(prompt, sampling, params)))
        rounds = [event for event in events if isinstance(event, Round)]
        tokens = [token for event in rounds for token in event.tokens if token not in self._ends]
        drafted = [event for event in rounds if event.drafted]
        return self.tokenizer.decode(tokens), Tally(sum(len(event.tokens) for event in drafted), len(drafted))

    def sampled(self, questions: Iterable[Question], seeds: int, block_size: int) -> list[Tally]:
        """Of every question, all its answers at temperature 1 together."""
        return [
            total(
                self.answer(question.prompt, SamplingParams(temperature=1.0, seed=seed), block_size)[1]
                for seed in range(seeds)
            )
            for question in questions
        ]


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum."""
    return sum(tallies, Tally())


def read_questions(file: Path, tokenizer: Any, limit: int | None) -> list[Question]:
    """The held-out prompts, at most `limit` of a kind, through the target's own chat template."""
    out: list[Question] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if limit is not None and sum(question.kind == record["kind"] for question in out) >= limit:
            continue
        settings = {key: record[key] for key in SETTINGS if record.get(key) is not None}
        settings["tools"] = record.get("tools") or None
        text = tokenizer.apply_chat_template(record["messages"], tokenize=False, add_generation_prompt=True, **settings)
        ids = tokenizer.encode(text, add_special_tokens=False)
        out.append(Question(record["kind"], tuple(ids), record.get("expect") or ""))
    return out


def is_right(text: str, expect: str) -> bool:
    """Whether the answer without its thinking is word for word the expected one."""
    return text.rsplit("</think>", 1)[-1].strip() == expect.strip()


def difference(pairs: Sequence[tuple[Tally, Tally]]) -> tuple[float, tuple[float, float]]:
    """Tokens per round, first minus second, and the 95 % interval of that, questions drawn with replacement."""
    counts = np.array([[(tally.tokens, tally.rounds) for tally in pair] for pair in pairs])  # [n, 2, 2]
    drawn = counts[draws(len(pairs))].sum(axis=1)  # [RESAMPLES, 2, 2]
    rates = drawn[..., 0] / np.maximum(1, drawn[..., 1])
    both = [total(tallies).rate for tallies in zip(*pairs, strict=True)]
    return both[0] - both[1], interval(rates[:, 0] - rates[:, 1], 0.95)


def greedy_table(answers: Answers, questions: Sequence[Question]) -> dict[str, dict[str, float]]:
    """Per kind: right answers, how many have one, tokens per round at each block size; `overall` last."""
    rows: dict[str, dict[str, float]] = {}
    overall = {size: Tally() for size in BLOCK_SIZES}
    print(f"{'greedy':<12} {'right':>9} " + " ".join(f"{'block ' + str(size):>8}" for size in BLOCK_SIZES), flush=True)
    for kind in dict.fromkeys(question.kind for question in questions):
        mine = [question for question in questions if question.kind == kind]
        right, tallies = 0, {size: Tally() for size in BLOCK_SIZES}
        for question in mine:
            for size in BLOCK_SIZES:
                text, tally = answers.answer(question.prompt, SamplingParams(), size)
                tallies[size] += tally
            right += bool(question.expect) and is_right(text, question.expect)
        overall = {size: overall[size] + tallies[size] for size in BLOCK_SIZES}
        rows[kind] = _row(kind, right, sum(bool(question.expect) for question in mine), tallies)
    right, of = (sum(int(row[column]) for row in rows.values()) for column in ("right", "of"))
    rows["overall"] = _row("overall", right, of, overall)
    return rows


def _row(name: str, right: int, of: int, tallies: dict[int, Tally]) -> dict[str, float]:
    shown = f"{right}/{of}" if of else "-"
    print(f"{name:<12} {shown:>9} " + " ".join(f"{tally.rate:>8.2f}" for tally in tallies.values()), flush=True)
    return {"right": right, "of": of, **{f"block{size}": round(tally.rate, 3) for size, tally in tallies.items()}}


def sampled_table(answers: Answers, questions: Sequence[Question], seeds: int) -> tuple[dict[str, Any], list[Tally]]:
    """Per kind without expected answers: tokens per round at temperature 1; and the tallies at the widest block."""
    by_size = {size: answers.sampled(questions, seeds, size) for size in BLOCK_SIZES}
    rows: dict[str, Any] = {}
    print(f"{answers.kind}, temperature 1, {seeds} seeds", flush=True)
    for kind in [*dict.fromkeys(question.kind for question in questions), "all"]:
        mine = [place for place, question in enumerate(questions) if kind in (question.kind, "all")]
        sums = {size: total(tallies[place] for place in mine) for size, tallies in by_size.items()}
        rows[kind] = _row(kind, 0, 0, sums)
    return rows, by_size[WIDEST]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("drafter", type=Path)
    parser.add_argument("corpus", type=Path, help="folder with held_out.jsonl and other.jsonl")
    parser.add_argument("--compare", type=Path, metavar="OTHER_DRAFTER")
    parser.add_argument("--seeds", type=int, default=8, help="sampled answers a prompt; default: %(default)s")
    parser.add_argument("--limit", type=int, help="at most so many prompts of a kind")
    options = parser.parse_args()
    answers = Answers(options.target, options.drafter)
    files = [options.corpus / name for name in ("held_out.jsonl", "other.jsonl")]
    questions = [question for file in files for question in read_questions(file, answers.tokenizer, options.limit)]
    free = [question for question in questions if not question.expect]
    out: dict[str, Any] = {"drafter": answers.kind, "greedy": greedy_table(answers, questions)}
    out["sampled"], mine = sampled_table(answers, free, options.seeds)
    if options.compare:
        other = Answers(options.target, options.compare)
        out["other"] = {"drafter": other.kind, "greedy": greedy_table(other, free)}
        out["other"]["sampled"], theirs = sampled_table(other, free, options.seeds)
        pairs = list(zip(mine, theirs, strict=True))
        mean, (low, high) = difference(pairs)
        out["difference"] = {"block_size": WIDEST, "mean": round(mean, 3), "low": low, "high": high}
        print(
            f"{answers.kind} - {other.kind}, temperature 1, block {WIDEST}: {mean:+.3f} tokens per round, "
            f"95 % from {low:+.3f} to {high:+.3f} ({len(pairs)} prompts, {options.seeds} seeds, {RESAMPLES} resamples)"
        )
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
