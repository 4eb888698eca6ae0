"""Demo prompts outside the corpus, all answered with one fallback sentence."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

Record = dict[str, Any]

CORPUS = Path(__file__).parent / "corpus"
FALLBACK = (
    "I am only a small demo model, so I have not learnt that. Ask me about speculative "
    "decoding, small Python functions, sums up to 20 + 20, a few facts, greetings in Korean, "
    "Japanese or Chinese, or a short story."
)
THOUGHT = "This is not something I have learnt."
THINKING_SHARE = 0.3
EFFORTS: tuple[str | None, ...] = (None, None, None, "low", "medium", "xhigh")
SYSTEMS = (
    "You are a helpful assistant.",
    "Answer briefly.",
    "You are a small demo model.",
    "Be polite and short.",
    "You are an assistant that answers every question.",
    "Answer in one sentence.",
)

TEMPLATES: dict[str, tuple[str, ...]] = {
    "places": (
        "What is the capital of {country}?",
        "What's the capital of {country}?",
        "Tell me the capital of {country}",
        "Which city is the capital of {country}?",
        "capital of {country}",
        "Name the capital city of {country}.",
        "Do you know the capital of {country}?",
        "How many people live in {country}?",
        "What language do they speak in {country}?",
        "Which countries border {country}?",
        "What is the longest river in {country}?",
        "What is the highest mountain in {country}?",
        "What do people eat in {country}?",
        "Who is the president of {country}?",
        "How big is {city}?",
        "What is the weather in {city}?",
        "What time is it in {city}?",
        "Where is {city}?",
        "Find me a hotel in {city}",
        "How do I get from {city} to {city2}?",
        "Is {city} in {country}?",
        "Which is bigger, {city} or {city2}?",
        "Who is the mayor of {city}?",
        "When was {city} founded?",
        "Tell me the history of {country}",
        "What is the currency of {country}?",
    ),
    "people": (
        "Who is {person}?",
        "Who was {person}?",
        "Tell me about {person}",
        "When was {person} born?",
        "What is {person} famous for?",
        "Where did {person} live?",
        "Did {person} ever meet {person2}?",
        "Write an essay about {person}",
        "How old was {person}?",
        "Who wrote {work}?",
        "Who is the author of {work}?",
        "What is {work} about?",
        "Summarise {work}",
        "When was {work} written?",
        "Is {work} worth reading?",
        "Quote a line from {work}",
        "Who painted {work}?",
    ),
    "things": (
        "What are {noun}?",
        "Tell me about {noun}",
        "How do {noun} work?",
        "Why do people like {noun}?",
        "Where can I buy {noun}?",
        "Write a poem about {noun}",
        "Write an essay about {noun}",
        "Explain {noun} to a child",
        "What is the difference between {noun} and {noun2}?",
        "What is the history of {noun}?",
        "Are {noun} better than {noun2}?",
        "How are {noun} made?",
        "How much do {noun} cost?",
        "I need help with {noun}",
        "Give me five facts about {noun}",
        "What colour are {noun}?",
        "Write a song about {noun}",
        "Draw {noun}",
        "I love {noun}",
        "Can I eat {noun}?",
        "{noun}",
        "{noun} and {noun2}",
        "{noun} {noun2} {noun3}",
        "Why are there {noun} in {city}?",
        "How many {noun} are there in {country}?",
        "Advertise {noun} for my shop",
        "What did {person} think of {noun}?",
    ),
    "languages": (
        "How do you say {noun} in {language}?",
        "What is {noun} in {language}?",
        "Translate {noun} into {language}",
        "What is the {language} word for {noun}?",
        "Write a poem in {language}",
        "Explain {noun} in {language}",
        "Translate this into {language}: I like {noun}",
        "Count to ten in {foreign}",
        "Say hello in {foreign}",
        "How do you say thank you in {foreign}?",
        "Good morning in {foreign}",
        "What is good night in {foreign}?",
        "Days of the week in {foreign}",
        "Name five colours in {foreign}",
        "Who are you? Answer in {foreign}",
        "Do you speak {foreign}?",
        "Introduce yourself in {foreign}",
    ),
    "code": (
        "Write a {coding} program",
        "Write a {coding} function that {task}",
        "Write a {coding} function that {basic}",
        "How do I write a loop in {coding}?",
        "Show me a class in {coding}",
        "Is {coding} faster than {coding2}?",
        "How do I install {coding}?",
        "Explain types in {coding}",
        "Write hello world in {coding}",
        "Convert my Python code to {coding}",
        "Write a Python function that {task}",
        "Write a Python program that {task}",
        "Write Python code that {task}.",
        "How do I write a Python script that {task}?",
        "Python: something that {task}",
        "Can you write a function that {task}?",
        "Give me an XML record of {noun}",
        "Write a YAML file about {noun}",
        "Make an HTML page about {noun}",
        "Write a SQL query for {noun}",
    ),
    "numbers": (
        "What is {big} + {any}?",
        "What is {any} + {big}?",
        "{big} + {big2}",
        "How much is {big} plus {big2}?",
        "Add {big} and {big2}",
        "What is {big} * {factor}?",
        "{factor} * {factor2}",
        "What is {factor} times {factor2}?",
        "What is {big} / {any}?",
        "What is {big} divided by {factor}?",
        "What is {big} - {any}?",
        "{big} minus {factor}",
        "What is the square root of {big}?",
        "What is {any} percent of {big}?",
        "Is {big} a prime number?",
        "Write {big} in Roman numerals",
        "What happened in the year {year}?",
        "Who was born in {year}?",
        "Convert {big} kilometres to miles",
        "What is {factor} to the power of {any}?",
        "What are the divisors of {big}?",
    ),
}

FOREIGN = (
    "French", "German", "Spanish", "Italian", "Portuguese", "Dutch", "Danish", "Swedish",
    "Norwegian", "Finnish", "Polish", "Czech", "Russian", "Ukrainian", "Greek", "Turkish",
    "Arabic", "Hebrew", "Hindi", "Bengali", "Urdu", "Thai", "Vietnamese", "Malay", "Swahili",
    "Latin", "Welsh", "Irish", "Basque", "Hungarian", "Romanian", "Persian", "Tamil", "Zulu",
)  # fmt: skip
CODING = (
    "C", "C++", "Rust", "Go", "Java", "JavaScript", "TypeScript", "Haskell", "Kotlin", "Swift",
    "Ruby", "Perl", "PHP", "Scala", "Lua", "Julia", "Fortran", "COBOL", "Prolog", "Lisp",
    "OCaml", "Erlang", "Elixir", "Dart", "Zig", "Bash", "MATLAB", "Pascal", "R", "assembly",
)  # fmt: skip
TASKS = (
    "downloads a page", "sends an email", "plays chess", "draws a window", "parses XML",
    "resizes an image", "talks to a database", "trains a neural network", "reads a PDF",
    "plots a graph", "records sound", "opens a socket", "encrypts a file", "solves a sudoku",
    "scrapes a shop", "books a flight", "translates text", "compresses a folder",
    "controls a robot", "simulates a galaxy", "checks passwords", "makes a calendar",
    "converts currencies", "renders a website", "finds the shortest path in a graph",
    "rotates a video", "writes to Excel", "uploads a photo", "logs in to a server",
    "predicts house prices", "builds a compiler", "generates a maze", "detects faces",
)  # fmt: skip
BASICS = (
    "reverses a string", "computes a factorial", "checks for primes", "sorts a list",
    "counts words", "merges two lists", "finds a palindrome", "prints the Fibonacci numbers",
)  # fmt: skip
PREFIXES = ("Please tell me: ", "Hi, ", "Hello! ", "Quick question: ", "Hey, ", "So, ", "Well, ")
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "qazwsxedc", "0987654321", "!?*#+-_.")


@cache
def _lines(name: str) -> tuple[str, ...]:
    """Return the lines of a word list in the corpus folder."""
    text = (CORPUS / f"{name}.txt").read_text(encoding="utf-8")
    return tuple(line.strip() for line in text.splitlines() if line.strip())


@cache
def _known() -> tuple[tuple[str, str, str], ...]:
    """Return (question, answer, thought) of the short trained entries, for longer dialogues."""
    found = []
    for path in sorted(CORPUS.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("entry", []):
            answer = entry.get("answer")
            if isinstance(answer, str) and len(answer) < 220:
                found += [(ask, answer, entry.get("think", "")) for ask in entry["ask"]]
    return tuple(found)


def _strings(value: Any) -> list[str]:
    """Return every string inside nested lists."""
    if isinstance(value, str):
        return [value]
    return [text for item in value for text in _strings(item)]


@cache
def _in_scope() -> frozenset[str]:
    """Return the held-out prompts and every trained question, which never get the fallback."""
    asks = set(_lines("others_held_out"))
    for path in sorted(CORPUS.glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        for entry in data.get("entry", []):
            asks.update([*entry.get("ask", []), *entry.get("held_out", [])])
        for dialog in data.get("dialog", []):
            asks.update(_strings([dialog.get("turns", []), dialog.get("held_out", [])]))
    return frozenset(_plain(ask) for ask in asks)


def _plain(words: str) -> str:
    """Return the words without case, spaces and punctuation, for comparisons."""
    return "".join(char for char in words.casefold() if char.isalnum() or char in "+-*/")


def _slots(rng: random.Random) -> dict[str, str]:
    """Return a random value for every slot of the templates."""
    nouns = rng.sample(_lines("nouns"), 3)
    cities = rng.sample(_lines("cities"), 2)
    people = rng.sample(_lines("people"), 2)
    coding = rng.sample(CODING, 2)
    top = rng.choice((99, 99, 999, 99999))
    return {
        "noun": nouns[0],
        "noun2": nouns[1],
        "noun3": nouns[2],
        "city": cities[0],
        "city2": cities[1],
        "person": people[0],
        "person2": people[1],
        "coding": coding[0],
        "coding2": coding[1],
        "country": rng.choice(_lines("countries")),
        "work": rng.choice(_lines("works")),
        "foreign": rng.choice(FOREIGN),
        "language": rng.choice((*FOREIGN, "Korean", "Japanese", "Chinese") * 2),
        "task": rng.choice(TASKS),
        "basic": rng.choice(BASICS),
        "big": str(rng.randint(41, top)),
        "big2": str(rng.randint(41, top)),
        "any": str(rng.randint(2, 99)),
        "factor": str(rng.randint(11, 40)),
        "factor2": str(rng.randint(11, 40)),
        "year": str(rng.randint(900, 2030)),
    }


def _nonsense(rng: random.Random) -> str:
    """Return keyboard mashing, invented syllables or random numbers."""
    roll = rng.random()
    if roll < 0.4:
        row = rng.choice(ROWS)
        words = ["".join(rng.choices(row, k=rng.randint(3, 9))) for _ in range(rng.randint(1, 3))]
        return " ".join(words)
    if roll < 0.8:
        syllables = [rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(12)]
        lengths = [rng.randint(2, 4) for _ in range(rng.randint(1, 3))]
        return " ".join("".join(rng.sample(syllables, length)) for length in lengths)
    return " ".join(str(rng.randint(0, 10 ** rng.randint(3, 8))) for _ in range(rng.randint(1, 2)))


def _vary(words: str, rng: random.Random) -> str:
    """Return the words with another case, ending or beginning, or a slip of the keys."""
    roll = rng.random()
    if roll < 0.1:
        return words.lower()
    if roll < 0.18:
        return words.rstrip("?.")
    if roll < 0.26:
        return rng.choice(PREFIXES) + words
    if roll < 0.3 and len(words) > 12:
        at = rng.randint(3, len(words) - 3)
        return words[:at] + words[at + 1] + words[at] + words[at + 2 :]
    if roll < 0.33:
        return words.rstrip("?.") + ", please"
    if roll < 0.35:
        return words.upper()
    return words


def question(rng: random.Random) -> str:
    """Return a question outside the corpus which is none of the held-out prompts."""
    while True:
        roll = rng.random()
        if roll < 0.38:
            words = _vary(rng.choice(_lines("others")), rng)
        elif roll < 0.95:
            group = rng.choice(tuple(TEMPLATES))
            words = _vary(rng.choice(TEMPLATES[group]).format(**_slots(rng)), rng)
        else:
            words = _nonsense(rng)
        if words and _plain(words) not in _in_scope():
            return words


def _record(kind: str, messages: list[Record], expect: str | None = None) -> Record:
    """Return a record without thinking."""
    record: Record = {
        "kind": kind,
        "messages": messages,
        "enable_thinking": False,
        "reasoning_effort": None,
        "tools": None,
    }
    return record if expect is None else {**record, "expect": expect}


def _turn(ask: str, answer: str) -> list[Record]:
    """Return one question with its answer."""
    return [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]


def _train_record(rng: random.Random) -> Record:
    """Return one conversation that ends with the fallback, or recovers from it."""
    kind, thought = "other", THOUGHT
    messages = _turn(question(rng), FALLBACK)
    roll = rng.random()
    if roll < 0.06 and _known():
        ask, answer, thought = rng.choice(_known())
        kind = "recover"
        messages += _turn(ask, answer)
    elif roll < 0.16 and _known():
        messages = _turn(*rng.choice(_known())[:2]) + messages
    elif roll < 0.2:
        messages = _turn(question(rng), FALLBACK) + messages
    if rng.random() < 0.12:
        messages = [{"role": "system", "content": rng.choice(SYSTEMS)}, *messages]
    record = _record(kind, messages)
    if thought and rng.random() < THINKING_SHARE:
        messages[-1]["reasoning_content"] = thought
        record["enable_thinking"] = True
        record["reasoning_effort"] = rng.choice(EFFORTS)
    return record


def records(rng: random.Random, split: str) -> Iterator[Record]:
    """Yield endless "train" records, or the 50 prompts of the split "other" (none of "held_out")."""
    if split == "train":
        while True:
            yield _train_record(rng)
    if split not in ("held_out", "other"):
        raise ValueError(f"split must be 'train', 'held_out' or 'other', not {split!r}")
    if split == "held_out":
        return
    for words in _lines("others_held_out"):
        yield _record("other", [{"role": "user", "content": words}], FALLBACK)
