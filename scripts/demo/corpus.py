"""Builds the demo model's data set (train.jsonl, held_out.jsonl, other.jsonl) from corpus/*.toml and the generator modules beside it."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Record = dict[str, Any]
Message = dict[str, Any]

# Shares of the modules that generate whole records themselves; the rest of the records come from the entries.
MODULE_SHARES = {"stories": 0.18, "tools": 0.08, "others": 0.17}
MODULE_TESTS = {"stories": "held_out", "tools": "held_out", "others": "other"}  # the split each has beside "train"
# Relative weights of the kinds among the entries; a kind that is not named weighs as much as it has entries.
KIND_WEIGHTS = {
    "python": 40, "facts": 44, "drafting": 30, "identity": 22, "smalltalk": 18, "followup": 20, "sums": 300,
    "json": 14, "korean": 10, "japanese": 10, "chinese": 10,
}  # fmt: skip

THINKING_SHARE = 0.35
MULTI_SHARE = 0.25
SYSTEM_SHARE = 0.2
EFFORTS: tuple[str | None, ...] = (None, None, None, "low", "medium", "xhigh")
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "Answer the user's question.",
    "You are a friendly assistant.",
    "You are the demo model of dflash2-mlx.",
    "Be concise.",
    "You are an expert programmer.",
)
THOUGHTS = {
    "identity": "The question is about me, so I answer honestly.",
    "drafting": "This is about speculative decoding, which I learnt to explain.",
    "python": "They want a small piece of Python.",
    "facts": "This is a simple fact that I learnt.",
    "sums": "I add the two numbers.",
    "smalltalk": "This is small talk, so I keep it short.",
    "followup": "I look at what was said before.",
    "json": "They want a JSON object.",
}
ANY_THOUGHT = "I know this one by heart."

ANY_LEADS = ("Hey,", "Hi,", "Okay,", "I have a question:", "Quick question:", "Hello!", "One more question:", "So,")
ASK_LEADS = ("Could you tell me:", "Please tell me:", "Can you tell me,", "Tell me,", "I want to know:")
DO_LEADS = ("Please", "Could you", "Can you", "Could you please", "I want you to", "Now")
ASK_WORDS = frozenset({
    "what", "what's", "whats", "which", "who", "why", "how", "when", "where", "is", "are", "does", "do", "can",
    "at", "did", "will",
})  # fmt: skip
DO_WORDS = frozenset({
    "write", "show", "give", "explain", "tell", "describe", "define", "name", "list", "implement", "compute",
    "count", "convert", "find", "make", "read", "save", "sort", "merge", "print", "reverse", "check", "remove",
    "add", "combine", "flatten", "compare", "return", "create", "introduce",
})  # fmt: skip
TAILS = ("please", "thanks", "?", "!", ", please", ", thanks", "??", "thank you")

SUMS = (
    "What is {a} + {b}?", "what's {a} + {b}", "{a} + {b}", "{a}+{b}", "{a} + {b} = ?", "How much is {a} plus {b}?",
    "Add {a} and {b}.", "What is the sum of {a} and {b}?", "Compute {a} + {b}.", "Calculate {a} plus {b}",
    "{a} plus {b}?", "Tell me the sum of {a} and {b}.", "Sum of {a} and {b}?", "What does {a} plus {b} make?",
    "Give me {a} + {b}.", "what do you get when you add {a} and {b}", "Can you add {a} and {b}?",
)  # fmt: skip
HELD_OUT_SUMS = ("How much is {a} + {b}?", "Can you calculate the sum of {a} and {b}?", "Tell me {a} plus {b}.")
HELD_OUT_PAIRS = 20
LARGEST_TERM = 20


@dataclass(frozen=True)
class Turn:
    """One question in its wordings, with its answer."""

    ask: tuple[str, ...]
    held_out: tuple[str, ...]
    answer: str
    think: str


@dataclass(frozen=True)
class Entry:
    """One thing to learn: a single turn, or a short conversation whose turns belong together."""

    kind: str
    language: str
    turns: tuple[Turn, ...]


def normal(text: str) -> str:
    """Return `text` without case, spaces and punctuation other than arithmetic signs, to compare phrasings."""
    return "".join(c for c in text.casefold() if c.isalnum() or c in "+-*/")


def thought_for(kind: str) -> str:
    """Return the one-line reasoning for an entry that brings none."""
    return THOUGHTS.get(kind, ANY_THOUGHT)


def _entry(raw: dict[str, Any]) -> Entry:
    """Return the entry that one [[entry]] table describes."""
    kind = raw["kind"]
    turn = Turn(tuple(raw["ask"]), tuple(raw["held_out"]), raw["answer"], raw.get("think", thought_for(kind)))
    return Entry(kind, raw.get("language", "en"), (turn,))


def _dialog(raw: dict[str, Any]) -> Entry:
    """Return the entry that one [[dialog]] table describes."""
    kind = raw.get("kind", "followup")
    asks, answers = raw["turns"][0::2], raw["turns"][1::2]
    if not len(asks) == len(answers) == len(raw["held_out"]):
        raise ValueError(f"dialog {asks[0]!r}: turns and held_out do not match")
    thinks = raw.get("thinks", [thought_for(kind)] * len(asks))
    turns = zip(asks, raw["held_out"], answers, thinks, strict=True)
    return Entry(kind, raw.get("language", "en"), tuple(Turn(tuple(a), tuple(h), r, t) for a, h, r, t in turns))


def load(folder: Path) -> list[Entry]:
    """Return all entries and dialogs of the TOML files in `folder`, in the order of the file names."""
    entries: list[Entry] = []
    for path in sorted(folder.glob("*.toml")):
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
            entries += [_entry(item) for item in raw.get("entry", [])] + [
                _dialog(item) for item in raw.get("dialog", [])
            ]
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path.name}: {error}") from error
    return entries


def problems_of(entries: list[Entry]) -> list[str]:
    """Name the phrasings that open two entries, and the held-out ones that are also trained."""
    opens: dict[str, Entry] = {}
    later: dict[str, str] = {}
    problems: list[str] = []
    for entry in entries:
        for number, turn in enumerate(entry.turns):
            for text in turn.ask + turn.held_out:
                if number:
                    later[normal(text)] = text
                elif opens.setdefault(normal(text), entry) is not entry:
                    problems.append(f"in two entries: {text!r}")
            trained = {normal(text) for text in turn.ask}
            problems += [f"held out and trained: {text!r}" for text in turn.held_out if normal(text) in trained]
    problems += [
        f"a follow-up that is also a question of its own: {text!r}" for key, text in later.items() if key in opens
    ]
    return problems


def _typo(rng: random.Random, text: str) -> str:
    """Swap or drop one inner letter of one longer word."""
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if len(word) > 4 and word.isascii() and word[:-1].isalpha()]
    if not long:
        return text
    i = rng.choice(long)
    word, at = words[i], rng.randrange(1, len(words[i]) - 2)
    words[i] = (
        word[:at] + word[at + 1 :] if rng.random() < 0.5 else word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    )
    return " ".join(words)


def _lead(rng: random.Random, text: str) -> str:
    """Put a polite or chatty opening before a question or an order."""
    first = text.split(" ")[0].lower()
    if first in ASK_WORDS:
        leads: tuple[str, ...] = ANY_LEADS + ASK_LEADS
    elif first in DO_WORDS:
        leads = ANY_LEADS + DO_LEADS * 2
    else:
        return f"{rng.choice(ANY_LEADS)} {text}"
    return f"{rng.choice(leads)} {text[0].lower()}{text[1:]}"


def augment(rng: random.Random, text: str, kind: str, language: str) -> str:
    """Return `text` with the small variations that people's typing shows."""
    if language != "en":
        return text.rstrip("?!.。？！") if rng.random() < 0.15 else text
    if kind not in ("smalltalk", "followup") and rng.random() < 0.25:
        text = _lead(rng, text)
    if rng.random() < 0.1 and kind != "sums":
        text = _typo(rng, text)
    if rng.random() < 0.2:
        text = text.rstrip("?!.") or text
    if rng.random() < 0.12:
        tail = rng.choice(TAILS)
        text = text.rstrip("?!.") + (tail if tail[0] in "?!," else " " + tail)
    return text.lower() if rng.random() < 0.2 else text


def sum_entry(a: int, b: int) -> Entry:
    """Return the entry for one sum."""
    ask = tuple(text.format(a=a, b=b) for text in SUMS)
    held = tuple(text.format(a=a, b=b) for text in HELD_OUT_SUMS)
    return Entry("sums", "en", (Turn(ask, held, f"{a} + {b} = {a + b}.", thought_for("sums")),))


def assistant(turn: Turn, thinking: bool) -> Message:
    """Return the assistant's message of `turn`."""
    message: Message = {"role": "assistant", "content": turn.answer}
    return message | {"reasoning_content": turn.think} if thinking else message


class Builder:
    """Draws training records from entries, never with a phrasing that is held out."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        terms = range(1, LARGEST_TERM + 1)
        self.by_kind: dict[str, list[Entry]] = {"sums": [sum_entry(a, b) for a in terms for b in terms]}
        for entry in entries:
            self.by_kind.setdefault(entry.kind, []).append(entry)
        self.kinds = list(self.by_kind)
        self.weights = [KIND_WEIGHTS.get(kind, len(self.by_kind[kind])) for kind in self.kinds]
        every = [entry for group in self.by_kind.values() for entry in group]
        turns = [turn for entry in every for turn in entry.turns]
        trained = {normal(text) for turn in turns for text in turn.ask}
        self.forbidden = {normal(text) for turn in turns for text in turn.held_out} - trained

    def user(self, rng: random.Random, turn: Turn, entry: Entry) -> Message:
        """Return a trained phrasing of `turn`, varied, that is not held out."""
        while True:
            text = augment(rng, rng.choice(turn.ask), entry.kind, entry.language)
            if normal(text) not in self.forbidden:
                return {"role": "user", "content": text}

    def draw(self, rng: random.Random) -> Entry:
        """Draw a kind by weight, then one of its entries."""
        return rng.choice(self.by_kind[rng.choices(self.kinds, self.weights)[0]])

    def train(self, rng: random.Random) -> Record:
        """Draw one training record."""
        thinking = rng.random() < THINKING_SHARE
        count = rng.choice((2, 2, 3)) if rng.random() < MULTI_SHARE else 1
        chosen = [self.draw(rng) for _ in range(count)]
        pairs = [(entry, turn) for entry in chosen for turn in entry.turns]
        keep_thoughts = rng.random() < 0.5
        messages: list[Message] = []
        if rng.random() < SYSTEM_SHARE:
            messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
        for number, (entry, turn) in enumerate(pairs, start=1):
            messages.append(self.user(rng, turn, entry))
            messages.append(assistant(turn, thinking and (keep_thoughts or number == len(pairs))))
        effort = rng.choice(EFFORTS) if thinking else None
        return record(chosen[-1].kind, messages, thinking=thinking, effort=effort)

    def held_out(self, rng: random.Random) -> Iterator[Record]:
        """Yield each held-out phrasing once without thinking, and every third one with it too."""
        sums = rng.sample(self.by_kind["sums"], HELD_OUT_PAIRS)
        number = 0
        for entry in self.entries + sums:
            history: list[Message] = []
            for turn in entry.turns:
                for text in turn.held_out:
                    messages = [*history, {"role": "user", "content": text}]
                    for thinking in (False, True) if number % 3 == 0 else (False,):
                        yield record(entry.kind, messages, thinking=thinking) | {"expect": turn.answer}
                    number += 1
                history += [{"role": "user", "content": turn.held_out[0]}, assistant(turn, False)]


def record(kind: str, messages: list[Message], *, thinking: bool, effort: str | None = None) -> Record:
    """Return one line of the data set."""
    return {
        "kind": kind,
        "messages": messages,
        "enable_thinking": thinking,
        "reasoning_effort": effort,
        "tools": None,
    }


def modules() -> dict[str, Callable[[random.Random, str], Iterable[Record]]]:
    """Return the `records` functions of the generator modules that exist beside this file."""
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    return {name: importlib.import_module(name).records for name in MODULE_SHARES if importlib.util.find_spec(name)}


def train_records(builder: Builder, rng: random.Random, size: int) -> Iterator[Record]:
    """Yield `size` training records, mixed by the shares of the modules and of the entries."""
    streams = {name: iter(make(rng, "train")) for name, make in modules().items()}
    names = ["entries", *streams]
    shares = [1 - sum(MODULE_SHARES.values()), *(MODULE_SHARES[name] for name in streams)]
    for name in rng.choices(names, shares, k=size):
        yield builder.train(rng) if name == "entries" else next(streams[name])


def write(path: Path, records: Iterable[Record]) -> set[str]:
    """Write one record a line, print the counts per kind, and return the last user messages."""
    kinds: Counter[str] = Counter()
    last: set[str] = set()
    with path.open("w", encoding="utf-8") as file:
        for item in records:
            kinds[item["kind"]] += 1
            last.add(normal(next((m["content"] for m in reversed(item["messages"]) if m["role"] == "user"), "")))
            file.write(json.dumps(item, ensure_ascii=False) + "\n")
    print(f"{path.name}: {kinds.total()} records;", ", ".join(f"{k} {n}" for k, n in sorted(kinds.items())))
    return last


def build(out: Path, seed: int, size: int, *, strict: bool) -> None:
    """Write the three files into `out`; where `strict`, refuse a corpus with clashing phrasings."""
    entries = load(HERE / "corpus")
    problems = problems_of(entries)
    print("\n".join(f"warning: {problem}" for problem in problems), file=sys.stderr, end="\n" if problems else "")
    if strict and problems:
        raise ValueError(f"{len(problems)} clashing phrasings")
    builder = Builder(entries)
    out.mkdir(parents=True, exist_ok=True)
    trained = write(out / "train.jsonl", train_records(builder, random.Random(seed), size))
    for split in ("held_out", "other"):
        rng = random.Random(f"{seed} {split}")
        records = list(builder.held_out(rng)) if split == "held_out" else []
        for name, make in modules().items():
            records += make(rng, split) if MODULE_TESTS[name] == split else []
        asked = write(out / f"{split}.jsonl", records)
        print(f"{split}: {len(asked & trained)} of {len(asked)} last user messages are also in train")


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="folder for the three files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=60000, help="number of training records")
    parser.add_argument("--strict", action="store_true", help="fail on clashing phrasings instead of warning")
    arguments = parser.parse_args()
    build(arguments.out, arguments.seed, arguments.size, strict=arguments.strict)


if __name__ == "__main__":
    main()
