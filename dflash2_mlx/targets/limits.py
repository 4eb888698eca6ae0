"""The numbers that decide how much memory and time a pass takes: spent by targets, counted by memory. Knows no MLX.

Source of the head sizes: MLX 0.32's fused attention kernels for Metal.
"""

CHUNK_ROWS = 512  # prompt tokens of one prefill pass: of 2,048, a quarter of the activations for 1 to 2 % more time
CHUNK_S = 1.0  # a pass over a prompt is shortened to take about as long: a cancel or a sign of life waits no longer
UNTIMED_ROWS = 128  # of a pass while the speed of this machine is not known
SMALLEST_CHUNK = 64
TAIL_ROWS = 256  # the prompt's last tokens, taken in by the pass that gives the first token
SCORE_BYTES = 2**30  # attention scores of one pass stay below this
QUEUED_LAYERS = 2  # whose activations a prefill pass holds at a time, about: MLX queues so far ahead
CACHE_STEP = 256  # rows by which mlx-lm's caches grow
SPARE_ROWS = 256  # of a window's buffer: so many rows are written before what can be seen is moved
FUSED_HEADS = (64, 80, 128)  # head sizes for which Metal's prefill attention keeps no scores
_FUSED_LATER, _FUSED_LATER_ROWS = ("M5", 256), 1024  # chip and head size: fused, from so many rows on


def smallest_chunk(head_dim: int, chip_family: str) -> int:
    """The fewest rows that a prefill pass is shortened to."""
    return _FUSED_LATER_ROWS if (chip_family, head_dim) == _FUSED_LATER else SMALLEST_CHUNK


def rows_within_scores(rows: int, heads: int, depth: int, least: int = SMALLEST_CHUNK) -> int:
    """How many of `rows` tokens a pass that ends at `depth` may take: it keeps scores [heads, rows, depth] float32."""
    return min(rows, max(least, SCORE_BYTES // (4 * heads * depth)))


class Pace:
    """How many rows make a prefill pass of about CHUNK_S seconds on this machine.

    A power of two, so that a small change of speed changes no pass. least: it is never shorter than so many rows.
    """

    def __init__(self, least: int = SMALLEST_CHUNK) -> None:
        self.least = least
        self._rate: float | None = None  # rows a second

    @property
    def rows(self) -> int:
        """At most so many rows a pass."""
        rows = UNTIMED_ROWS if self._rate is None else int(self._rate * CHUNK_S)
        return max(self.least, 1 << rows.bit_length() - 1)

    def record(self, rows: int, seconds: float) -> None:
        """A pass over `rows` rows took so long; what a short one takes says little about a long one."""
        if rows >= SMALLEST_CHUNK:
            self._rate = rows / max(seconds, 1e-9)
