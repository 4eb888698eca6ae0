"""What the process knows of a loaded pair, whichever session asks: learnt widths, whether it is warm and answering."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from dflash2_mlx.engine.widths import ROUND_COSTS, BlockSize, WidthPolicy, choose_block_size
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.memory.machine import probe


@dataclass(slots=True)
class Known:
    """widths: what every answer with an automatic block size learns from and adds to; None without a drafter.

    warm: whether its kernels were compiled. answering: a pair has one cache, so it gives one answer at a time.
    """

    widths: WidthPolicy | None
    warm: bool = False
    answering: bool = False


_KNOWN: WeakKeyDictionary[Pair, Known] = WeakKeyDictionary()


def known_of(pair: Pair) -> Known:
    """The one state of `pair`, gone with it: one call of `generate` profits from what the ones before it learnt."""
    if pair not in _KNOWN:
        costs = ROUND_COSTS.get(probe().family) if pair.target.quantized else None
        _KNOWN[pair] = Known(WidthPolicy(block_size_for(pair, None).rows, costs) if pair.drafter else None)
    return _KNOWN[pair]


def block_size_for(pair: Pair, requested: int | None) -> BlockSize:
    """The block size in use for this pair and why; 1 where there is no drafter. requested None: the default.

    Raises: UsageError for more rows than the drafter was trained with.
    """
    target, drafter = pair.target, pair.drafter
    if drafter is None:
        return BlockSize(1, pair.speculation_off or "no drafter is loaded")
    return choose_block_size(
        requested, drafter.block_size, quantized=target.quantized, queries_per_kv=target.query_heads_per_kv
    )
