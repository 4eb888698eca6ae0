"""Gumbel noise as a pure function of (seed, position), and seeds for everything else that is random."""

import mlx.core as mx

_MASK = 2**64 - 1


def _mix(value: int) -> int:
    """splitmix64's finaliser: neighbouring inputs give unrelated 64-bit outputs.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def key_for(seed: int, position: int, purpose: int = 0) -> mx.array:
    """The random key [2] uint32 of one output position. Any int is a seed; `purpose` separates independent uses."""
    value = _mix((seed + 0x9E3779B97F4A7C15) & _MASK)
    value = _mix((value + 0x9E3779B97F4A7C15 * (position + 1)) & _MASK)
    value = _mix((value + 0xD1B54A32D192ED03 * purpose) & _MASK)
    return mx.array([value >> 32, value & 0xFFFFFFFF], dtype=mx.uint32)


def uniform_rows(seed: int, position: int, rows: int, purpose: int) -> mx.array:
    """Uniform [0, 1) float32 [rows]; number j depends on (seed, position + j, purpose) only."""
    return mx.concatenate(
        [mx.random.uniform(shape=(1,), key=key_for(seed, position + j, purpose)) for j in range(rows)]
    )


def gumbel_rows(seed: int, position: int, rows: int, width: int, purpose: int = 0) -> mx.array:
    """Standard Gumbel float32 [rows, width]; row j depends on (seed, position + j, purpose) only, not on `rows`."""
    return mx.stack([mx.random.gumbel((width,), key=key_for(seed, position + j, purpose)) for j in range(rows)])
