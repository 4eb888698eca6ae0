"""Gumbel noise as a pure function of (seed, position), and seeds for everything else that is random."""

import mlx.core as mx

_MASK = 2**64 - 1
_LANES = 16  # numbers that a CPU computes at once, at most


def _mix(value: int) -> int:
    """splitmix64's finaliser: neighbouring inputs give unrelated 64-bit outputs.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def uniform_rows(seed: int, position: int, rows: int, purpose: int) -> mx.array:
    """Uniform [0, 1) float32 [rows]; number j depends on (seed, position + j, purpose) only.

    Any int is a seed; `purpose` separates independent uses of one position.
    """
    keys = _keys(seed, position, rows, purpose)
    numbers: mx.array = mx.vmap(lambda key: mx.random.uniform(shape=(_LANES,), key=key))(keys)
    return numbers[:, 0]


def gumbel_rows(seed: int, position: int, rows: int, width: int, purpose: int = 0) -> mx.array:
    """Standard Gumbel float32 [rows, width]; row j depends on (seed, position + j, purpose) only, not on `rows`.

    One set of operations for all rows. Whole lanes are drawn, so that a CPU computes every row by the same path.
    """
    keys = _keys(seed, position, rows, purpose)
    whole = -(-width // _LANES) * _LANES
    noise: mx.array = mx.vmap(lambda key: mx.random.gumbel((whole,), key=key))(keys)
    return noise[:, :width]


def _keys(seed: int, position: int, rows: int, purpose: int) -> mx.array:
    """Keys [rows, 2] uint32 of the output positions from `position` on."""
    return mx.array([_words(seed, position + row, purpose) for row in range(rows)], dtype=mx.uint32)


def _words(seed: int, position: int, purpose: int) -> tuple[int, int]:
    value = _mix((seed + 0x9E3779B97F4A7C15) & _MASK)
    value = _mix((value + 0x9E3779B97F4A7C15 * (position + 1)) & _MASK)
    value = _mix((value + 0xD1B54A32D192ED03 * purpose) & _MASK)
    return value >> 32, value & 0xFFFFFFFF
