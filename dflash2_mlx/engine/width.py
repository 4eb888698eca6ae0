"""How many rows a block has, and why. Knows no MLX.

Source: quantised matrix products on Apple GPUs serve at most 5 rows in one pass over the weights, and fused attention
needs rows * (query heads / kv heads) <= 32: past either, a round costs about twice as much.
"""

from dataclasses import dataclass

from dflash2_mlx.errors import UsageError

_ROWS_IN_ONE_PASS = 5
_FUSED_QUERIES = 32


@dataclass(frozen=True, slots=True)
class BlockSize:
    """Rows of a block, anchor included; the reason for people; a warning where the choice costs something."""

    rows: int
    reason: str
    warning: str | None = None


def choose_block_size(requested: int | None, trained: int, *, quantized: bool, queries_per_kv: int) -> BlockSize:
    """The block size for a drafter trained with `trained` rows on this target.

    Raises: UsageError for more rows than the drafter was trained with.
    """
    if requested is not None and requested > trained:
        raise UsageError(
            f"block size {requested} is above the {trained} rows that this drafter was trained with. "
            f"Give 1 (plain decoding) to {trained}."
        )
    cap = max(2, min(_ROWS_IN_ONE_PASS, _FUSED_QUERIES // queries_per_kv)) if quantized else trained
    if requested is None:
        if cap >= trained:
            return BlockSize(trained, "the drafter's own block size")
        return BlockSize(cap, f"the target is quantised: more than {cap} rows cost a second pass over its weights")
    if requested == 1:
        return BlockSize(1, "asked for: a block of one row is plain decoding")
    if requested > cap:
        costly = f"block size {requested} on a quantised target: rows past {cap} cost a second pass over its weights"
        return BlockSize(requested, "asked for", costly)
    return BlockSize(requested, "asked for")
