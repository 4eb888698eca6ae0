"""Text or conversations as training pieces and batches of them. Knows a tokenizer and files, no MLX.

A piece is cut as the target sees it at inference: the prompt comes from the chat template with a generation prompt,
the reply is tokenised on its own. Only replies are learnt; of plain text, everything is.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dflash2_mlx.errors import LoadError
from dflash2_mlx.text.messages import plain_messages

SETTINGS = ("enable_thinking", "reasoning_effort")  # keys of a record that its chat template is given
DOCUMENT_CHARACTERS = 8000  # plain text is cut at line ends into documents of about this size
POOL_ROWS = 512  # pieces that are sorted by length together
HELD_BACK = (8, 64)  # documents kept for the estimate: a fiftieth, within these bounds


@dataclass(frozen=True, slots=True)
class Piece:
    """Token ids, of which those from `start` on are to be drafted."""

    ids: tuple[int, ...]
    start: int

    @property
    def anchors(self) -> range:
        """The positions that a block can start from: something before it, an answer right after it."""
        return range(max(1, self.start - 1), len(self.ids) - 1)


class Corpus:
    """The documents of a file, a shuffled few of them held back."""

    def __init__(self, path: Path, tokenizer: Any, *, longest: int, seed: int) -> None:
        self._path, self._tokenizer, self._longest = path, tokenizer, longest
        documents = _documents(path)
        random.Random(seed).shuffle(documents)
        low, high = HELD_BACK
        count = min(max(low, len(documents) // 50), high, max(1, len(documents) // 4))
        self._held_back, self._documents = documents[:count], documents[count:] or documents

    def __len__(self) -> int:
        return len(self._documents)

    def held_back(self) -> list[Piece]:
        """The pieces that are never trained on (unless the file has a single document)."""
        return [piece for document in self._held_back for piece in self.pieces(document)]

    def pools(self, seed: int, full: Callable[[Sequence[Piece]], bool]) -> Iterator[list[Piece]]:
        """Endless lists of pieces in an order that depends on the seed; a list ends when it is `full`.

        A file that fits one pool gives the same list for ever.
        """
        chance = random.Random(seed)
        while True:
            pool: list[Piece] = []
            given = 0
            for document in chance.sample(self._documents, len(self._documents)):
                pool += self.pieces(document)
                if full(pool):
                    given += 1
                    yield pool
                    pool = []
            if given == 0 and not pool:
                raise LoadError(f"{self._path} has no text and no assistant message to learn from. Give other data.")
            while given == 0:
                yield pool
            if pool:
                yield pool

    def pieces(self, document: dict[str, Any]) -> list[Piece]:
        """Every piece of one document; long ones are cut, and each token is to be drafted in one piece only."""
        if "messages" not in document:
            return list(_cut(self._tokenizer.encode(document["text"]), 1, self._longest))
        out: list[Piece] = []
        for prompt, reply in _turns(self._tokenizer, document):
            before = self._tokenizer.encode(prompt, add_special_tokens=False)
            ids = before + self._tokenizer.encode(reply, add_special_tokens=False)
            out += _cut(ids, len(before), self._longest)
        return out


def by_length(pool: Sequence[Piece], rows: int, chance: random.Random) -> list[list[int]]:
    """Places in the pool, grouped into batches of `rows` pieces of similar length, in random order."""
    order = sorted(range(len(pool)), key=lambda place: (len(pool[place].ids), chance.random()))
    groups = [order[first : first + rows] for first in range(0, len(order), rows)]
    chance.shuffle(groups)
    return groups


def _documents(path: Path) -> list[dict[str, Any]]:
    """Records with `messages` or `text`. Raises: LoadError naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path} cannot be read as UTF-8 text ({error}). Give a text or JSON-lines file.") from error
    if path.suffix in (".jsonl", ".json"):
        numbered = ((n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip())
        documents = [_record(path, number, line) for number, line in numbered]
    else:
        documents = [{"text": part} for part in _parts(text)]
    if not documents:
        raise LoadError(f"{path} is empty. Give text, or JSON lines with `messages` or `text`.")
    return documents


def _record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise LoadError(f"{path}, line {number}: not JSON ({error}). Give one JSON object a line.") from error
    usable = isinstance(record, dict) and (
        isinstance(record.get("messages"), list) or isinstance(record.get("text"), str)
    )
    if not usable:
        raise LoadError(f"{path}, line {number}: neither `messages` (a list) nor `text`. Give one of them a line.")
    return dict(record)


def _parts(text: str) -> Iterator[str]:
    part = ""
    for line in text.splitlines(keepends=True):
        part += line
        if len(part) >= DOCUMENT_CHARACTERS:
            yield part
            part = ""
    if part.strip():
        yield part


def _turns(tokenizer: Any, record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(prompt, reply) of every assistant turn, as text."""
    settings = {key: record[key] for key in SETTINGS if record.get(key) is not None}
    settings["tools"] = record.get("tools") or None
    messages = plain_messages(record["messages"])

    def render(count: int, *, prompt: bool) -> str:
        text: str = tokenizer.apply_chat_template(
            messages[:count], tokenize=False, add_generation_prompt=prompt, **settings
        )
        return text

    for number, message in enumerate(messages):
        if message["role"] == "assistant" and number:
            prompt, whole = render(number, prompt=True), render(number + 1, prompt=False)
            yield prompt, _reply(prompt, whole, str(message["content"]))


def _reply(prompt: str, whole: str, content: str) -> str:
    """What the model itself has to write of `whole`, up to and with its end token.

    Some templates write the last turn otherwise than the prompt announced it; then the reply is its content.
    """
    if whole.startswith(prompt):
        return whole.removeprefix(prompt).rstrip()
    place = whole.rfind(content) if content else -1
    return whole[place:].rstrip() if place >= 0 else ""


def _cut(ids: Sequence[int], start: int, longest: int) -> Iterator[Piece]:
    """Pieces of at most `longest` ids; where one has to be cut, half of it is context."""
    first = max(1, start)
    while first < len(ids):
        begin = max(0, first - longest // 2) if len(ids) > longest else 0
        end = min(len(ids), begin + longest)
        piece = Piece(tuple(ids[begin:end]), first - begin)
        if piece.anchors:
            yield piece
        first = end
