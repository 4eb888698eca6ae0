"""Recent responses and conversations, in memory only: bounded, each owner's own. Knows documents, no model."""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.errors import ApiError
from dflash2_mlx.server.sse import to_json

Item = Mapping[str, object]
MOST_ENTRIES, MOST_BYTES = 1000, 64 * 2**20


@dataclass(frozen=True, slots=True)
class Entry:
    """A response or a conversation, and everything that was said up to its end. nbytes: about what it holds."""

    document: JsonObject
    items: tuple[Item, ...] = ()
    nbytes: int = 0


class Remembered:
    """The responses and conversations of all owners, who are told by their keys; the least used ones go first."""

    def __init__(self) -> None:
        self.entries: OrderedDict[tuple[str, str], Entry] = OrderedDict()
        self.nbytes = 0
        self._lock = threading.RLock()  # requests are read on one thread, and answered on another

    def entry(self, owner: str, identity: str) -> Entry:
        """A response or a conversation, which is used by this. Raises: ApiError 404."""
        with self._lock:
            entry = self.entries.get((owner, identity))
            if entry is None:
                raise _forgotten(identity)
            self.entries.move_to_end((owner, identity))
            return entry

    def item(self, owner: str, identity: str) -> Item:
        """One item of what was said. Raises: ApiError 404."""
        with self._lock:
            kept = [entry for (whose, _), entry in self.entries.items() if whose == owner]
        found = (item for entry in reversed(kept) for item in reversed(entry.items) if item.get("id") == identity)
        if (item := next(found, None)) is None:
            raise _forgotten(identity)
        return item

    def keep(self, owner: str, document: JsonObject, before: Entry | None, items: Sequence[Item]) -> None:
        """Keep a document under its id, with what was said `before` and the further `items`, unless it is too large."""
        earlier, earlier_bytes = (before.items, before.nbytes) if before else ((), 0)
        entry = Entry(document, (*earlier, *items), earlier_bytes + len(to_json([document, *items])))
        key = (owner, str(document["id"]))
        with self._lock:
            self._drop(key)
            if entry.nbytes <= MOST_BYTES:
                self.entries[key] = entry
                self.nbytes += entry.nbytes
            while self.nbytes > MOST_BYTES or len(self.entries) > MOST_ENTRIES:
                self._drop(next(iter(self.entries)))

    def extend(self, owner: str, identity: str, items: Sequence[Item]) -> None:
        """Keep further items of a conversation. Raises: ApiError 404."""
        with self._lock:
            entry = self.entry(owner, identity)
            self.keep(owner, entry.document, entry, items)

    def forget(self, owner: str, identity: str) -> JsonObject:
        """Drop a response or a conversation; its document. Raises: ApiError 404."""
        with self._lock:
            entry = self.entry(owner, identity)
            self._drop((owner, identity))
            return entry.document

    def _drop(self, key: tuple[str, str]) -> None:
        entry = self.entries.pop(key, None)
        self.nbytes -= entry.nbytes if entry else 0


def with_id(item: Item) -> Item:
    """The item with an id, so that it can be referred to."""
    return item if item.get("id") else {"type": "message", **item, "id": f"item_{uuid.uuid4().hex}"}


def _forgotten(identity: str) -> ApiError:
    message = (
        f"{identity[:100]!r} is not known here: the latest responses are kept in memory, until a restart, for the key "
        "they were made with, and none that said store: false. Send the whole conversation as input."
    )
    return ApiError(404, "not_found", message)
