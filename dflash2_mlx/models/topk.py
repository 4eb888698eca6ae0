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
    whole = width - width % _CHUNK
    chunks = rows[..., :whole].reshape(*rows.shape[:-1], -1, _CHUNK)  # [n, C, 128]
    maxima = chunks.max(axis=-1)  # [n, C]
    best = mx.argpartition(maxima, kth=maxima.shape[-1] - count, axis=-1)[..., -count:]  # [n, count]
    finalists = mx.take_along_axis(chunks, best[..., None], axis=-2)  # [n, count, 128]
    finalists = finalists.reshape(*rows.shape[:-1], count * _CHUNK)
    if whole < width:
        finalists = mx.concatenate([finalists, rows[..., whole:]], axis=-1)
    places = mx.argpartition(finalists, kth=finalists.shape[-1] - count, axis=-1)[..., -count:]
    values = mx.take_along_axis(finalists, places, axis=-1)
    inside = mx.minimum(places // _CHUNK, count - 1)
    ids = mx.take_along_axis(best, inside, axis=-1) * _CHUNK + places % _CHUNK
    return mx.where(places < count * _CHUNK, ids, places + (whole - count * _CHUNK)), values
