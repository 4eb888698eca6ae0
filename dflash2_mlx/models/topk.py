"""The largest entries of long rows. Knows mlx only."""

import mlx.core as mx

_CHUNK = 128


def largest(rows: mx.array, count: int) -> tuple[mx.array, mx.array]:
    """The `count` largest entries of every row: (ids [n, count] uint32, values [n, count]), in no set order.

    Only the `count` chunks with the largest maxima can hold one of them, so long rows are searched in two short
    steps instead of one sort over the whole vocabulary. Which of equal entries is returned is not defined.
    """
    width = rows.shape[-1]
    if count * _CHUNK * 2 > width:
        ids = mx.argpartition(rows, kth=width - count, axis=-1)[..., width - count :]
        return ids, mx.take_along_axis(rows, ids, axis=-1)
    if width % _CHUNK:
        padding = [(0, 0)] * (rows.ndim - 1) + [(0, _CHUNK - width % _CHUNK)]
        rows = mx.pad(rows, padding, constant_values=float("-inf"))
    chunks = rows.reshape(*rows.shape[:-1], -1, _CHUNK)  # [n, C, 128]
    maxima = chunks.max(axis=-1)  # [n, C]
    best = mx.argpartition(maxima, kth=maxima.shape[-1] - count, axis=-1)[..., -count:]  # [n, count]
    finalists = mx.take_along_axis(chunks, best[..., None], axis=-2)  # [n, count, 128]
    finalists = finalists.reshape(*rows.shape[:-1], count * _CHUNK)
    places = mx.argpartition(finalists, kth=count * _CHUNK - count, axis=-1)[..., -count:]
    ids = mx.take_along_axis(best, places // _CHUNK, axis=-1) * _CHUNK + places % _CHUNK
    return ids, mx.take_along_axis(finalists, places, axis=-1)
