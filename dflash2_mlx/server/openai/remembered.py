"""Recent responses and conversations, in memory only: bounded, each owner's own. Knows documents, no model."""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Remembered:
    """The entries of all owners; those that were not used for longest go first."""

    entries: OrderedDict[tuple[str, str], Entry] = field(default_factory=OrderedDict)
    nbytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, key: tuple[str, str], entry: Entry) -> None:
        """Keep `entry` in place of an earlier one, unless it is too large for all of it."""
        with self.lock:
            self._drop(key)
            if entry.nbytes <= MOST_BYTES:
                self.entries[key] = entry
                self.nbytes += entry.nbytes
            while self.nbytes > MOST_BYTES or len(self.entries) > MOST_ENTRIES:
                self._drop(next(iter(self.entries)))

    def get(self, key: tuple[str, str]) -> Entry | None:
        """The entry, which is used by this."""
        with self.lock:
            if key in self.entries:
                self.entries.move_to_end(key)
            return self.entries.get(key)

    def item(self, owner: str, identity: str) -> Item | None:
        """The owner's item of this id."""
        with self.lock:
            kept = [entry for (whose, _), entry in self.entries.items() if whose == owner]
        found = (item for entry in reversed(kept) for item in reversed(entry.items) if item.get("id") == identity)
        return next(found, None)

    def drop(self, key: tuple[str, str]) -> bool:
        """Forget the entry; whether there was one."""
        with self.lock:
            return self._drop(key)

    def _drop(self, key: tuple[str, str]) -> bool:
        entry = self.entries.pop(key, None)
        self.nbytes -= entry.nbytes if entry else 0
        return entry is not None


@dataclass(frozen=True, slots=True)
class Earlier:
    """What one owner, told by the key that a request carries, may ask for."""

    all: Remembered
    owner: str

    def entry(self, identity: str) -> Entry:
        """A response or a conversation. Raises: ApiError 404 where it was never kept, or is forgotten."""
        entry = self.all.get((self.owner, identity))
        if entry is None:
            raise _forgotten(identity)
        return entry

    def item(self, identity: str) -> Item:
        """One item of what was said. Raises: ApiError 404."""
        item = self.all.item(self.owner, identity)
        if item is None:
            raise _forgotten(identity)
        return item

    def keep(self, document: JsonObject, before: Entry | None, items: Sequence[Item]) -> None:
        """Keep a document under its id, with what was said `before` and the further `items`."""
        earlier, earlier_bytes = (before.items, before.nbytes) if before else ((), 0)
        nbytes = earlier_bytes + len(to_json([document, *items]))
        self.all.put((self.owner, str(document["id"])), Entry(document, (*earlier, *items), nbytes))

    def extend(self, identity: str, items: Sequence[Item]) -> None:
        """Keep further items of a conversation. Raises: ApiError 404."""
        entry = self.entry(identity)
        self.keep(entry.document, entry, items)

    def forget(self, identity: str) -> None:
        """Raises: ApiError 404 where there is nothing to forget."""
        if not self.all.drop((self.owner, identity)):
            raise _forgotten(identity)


def with_id(item: Item) -> Item:
    """The item with an id, so that it can be referred to."""
    return item if item.get("id") else {"type": "message", **item, "id": f"item_{uuid.uuid4().hex}"}


def _forgotten(identity: str) -> ApiError:
    message = (
        f"{identity[:100]!r} is not known here: the latest responses are kept in memory, until a restart, for the key "
        "they were made with, and none that said store: false. Send the whole conversation as input."
    )
    return ApiError(404, "not_found", message)
