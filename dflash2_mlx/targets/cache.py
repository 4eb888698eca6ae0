"""What a target remembers of a text: one cache a layer, and the way back to an earlier place. Knows mlx-lm's caches.

A layer's cache grows and can be cut (attention), or is a state that only a copy brings back (recurrent layers,
windows). mlx-lm hands out its live lists and writes into its key and value arrays in place: so a snapshot copies lists
and the rows of a window, and refers to recurrent states, which are replaced and never written into.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from dflash2_mlx.targets.limits import CACHE_STEP
from dflash2_mlx.targets.window import WindowCache

Part = tuple[mx.array | None, ...] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A place to come back to: `position` rows, and of every layer what cutting cannot bring back (None: cut it)."""

    position: int
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held by this snapshot alone."""
        return sum(array.nbytes for part in self.parts if part for array in part if array is not None)


class TargetCache:
    """The caches of all layers after `position` rows."""

    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers
        self.position = 0

    @property
    def nbytes(self) -> int:
        """Bytes held by all layers."""
        return sum(int(layer.nbytes) for layer in self.layers if not layer.empty())

    def snapshot(self) -> Snapshot:
        """This place. It stays good while the cache grows, and while it is cut back no further than here."""
        parts = tuple(_part(layer) for layer in self.layers)
        mx.async_eval([array for part in parts if part for array in part if array is not None])
        return Snapshot(self.position, parts)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to `snapshot`, which was taken of this cache or of the one that it was forked from."""
        assert snapshot.position <= self.position, f"{snapshot.position} rows asked for, {self.position} are there"
        for layer, part in zip(self.layers, snapshot.parts, strict=True):
            _put_back(layer, part, snapshot.position)
        self.position = snapshot.position

    def fork(self, snapshot: Snapshot, empty: "TargetCache") -> "TargetCache":
        """`empty` filled up to `snapshot`. Growing layers are copied, so neither cache ever sees the other's rows."""
        for mine, new, part in zip(self.layers, empty.layers, snapshot.parts, strict=True):
            if _grows(mine) and not mine.empty():
                new.keys = mx.contiguous(mine.keys[..., : snapshot.position, :])
                new.values = mx.contiguous(mine.values[..., : snapshot.position, :])
                new.offset = snapshot.position
                mx.async_eval(new.keys, new.values)
            _put_back(new, part, snapshot.position)
        empty.position = snapshot.position
        return empty

    def release(self) -> None:
        """Drop what a snapshot brings back; `restore` must come before the next use."""
        for layer in self.layers:
            if isinstance(layer, WindowCache):
                layer.put_back(None, None, 0)
            elif not _grows(layer):
                layer.cache = [None] * len(layer.cache)


def _grows(layer: Any) -> bool:
    return not isinstance(layer, WindowCache) and not hasattr(layer, "cache")


def _shrink(layer: Any) -> None:
    """Give back the room of rows that were cut off, where it is more than what is kept and what a cache grows by."""
    if not layer.empty() and layer.keys.shape[2] > 2 * layer.offset + CACHE_STEP:
        layer.keys = mx.contiguous(layer.keys[..., : layer.offset, :])
        layer.values = mx.contiguous(layer.values[..., : layer.offset, :])
        mx.eval(layer.keys, layer.values)


def _part(layer: Any) -> Part:
    if isinstance(layer, WindowCache):
        return layer.copy()
    return None if _grows(layer) else tuple(layer.cache)


def _put_back(layer: Any, part: Part, position: int) -> None:
    if isinstance(layer, WindowCache):
        keys, values = part or (None, None)
        layer.put_back(keys, values, position)
    elif _grows(layer):
        layer.trim(layer.offset - position)
        _shrink(layer)
    else:
        assert part is not None
        layer.cache = list(part)
