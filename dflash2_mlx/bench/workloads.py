"""The workloads: prompts of this project, and a generated log as long as asked for. Knows no pair and no MLX."""

import json
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dflash2_mlx.errors import UsageError

_SHIPS = ("Amsel", "Brunhild", "Corvina", "Dorado", "Elster", "Fregatte Nord", "Gunilla", "Heron", "Isolde", "Juniper")
_GOODS = ("barley", "tiles", "salted cod", "rope", "pumps", "window glass", "coffee", "paper", "copper wire", "seed")
_PORTS = ("Tallinn", "Porto", "Bergen", "Gdansk", "Malmo", "Antwerp", "Vigo", "Turku", "Hull", "Riga")
_EVENTS = (
    "The pilot waited two hours for the fog to lift.",
    "A crane stood still until the electrician found a blown fuse.",
    "Customs opened three crates and closed them again.",
    "The crew asked for fresh water and a doctor for the cook.",
    "One bale fell into the basin and was fished out by the night watch.",
    "The mooring line was changed because it had chafed through to the core.",
    "Nothing else happened, and the clerk noted the tide twice by mistake.",
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of text. conversations: user messages, each answered in turn. document_tokens: 0 = no document."""

    name: str
    about: str
    max_tokens: int
    conversations: tuple[tuple[str, ...], ...]
    document_tokens: int = 0
    tools: tuple[Mapping[str, object], ...] = ()


def bundled_workloads() -> tuple[Workload, ...]:
    """The workloads of the package, in the order in which they are shown."""
    raw = tomllib.loads((Path(__file__).parent / "prompts.toml").read_text(encoding="utf-8"))
    return tuple(
        Workload(
            entry["name"],
            entry["about"],
            entry["max_tokens"],
            tuple(tuple(turns) for turns in entry["conversations"]),
            entry.get("document_tokens", 0),
            tuple(json.loads(entry.get("tools", "[]"))),
        )
        for entry in raw["workload"]
    )


def chosen(workloads: Sequence[Workload], names: Sequence[str]) -> tuple[Workload, ...]:
    """Those of the given names, all where no name is given. Raises: UsageError for an unknown name."""
    known = {workload.name: workload for workload in workloads}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no workload {name}. Give one of {', '.join(known)}.")
    return tuple(known[name] for name in names) if names else tuple(workloads)


def shortened(workload: Workload, *, max_tokens: int, document_tokens: int) -> Workload:
    """The workload for a quick look: its first conversation, two turns, a shorter answer and document."""
    return replace(
        workload,
        conversations=(workload.conversations[0][:2],),
        max_tokens=min(max_tokens, workload.max_tokens),
        document_tokens=min(document_tokens, workload.document_tokens),
    )


def harbour_log(entries: int) -> str:
    """A harbour log of so many entries, always the same; no two entries are alike."""
    draws = random.Random(2026)
    lines = []
    for number in range(1, entries + 1):
        ship, goods, port, event = (draws.choice(words) for words in (_SHIPS, _GOODS, _PORTS, _EVENTS))
        lines.append(
            f"Entry {number}, {draws.randrange(24):02}:{draws.randrange(60):02}. The {ship} came in from {port} with "
            f"{draws.randrange(3, 900)} tonnes of {goods} and lay at berth {draws.randrange(1, 40)}. {event}"
        )
    return "\n".join(lines)


def with_document(message: str, tokens: int, count_tokens: Callable[[str], int]) -> str:
    """`message` after a log so long that `count_tokens` of both is at most `tokens`, and close to it."""
    low, high = 0, max(1, tokens // 8)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(_joined(middle, message)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return _joined(low, message)


def _joined(entries: int, message: str) -> str:
    return f"The log of a harbour:\n\n{harbour_log(entries)}\n\n{message}" if entries else message
