"""Which mlx-lm model is served by which kind of target. Refuses by name what cannot be cut back exactly."""

from typing import Any

from dflash2_mlx.errors import UnsupportedError
from dflash2_mlx.targets.attention import AttentionTarget
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.hybrid import HybridTarget
from dflash2_mlx.targets.limits import Pace, smallest_chunk
from dflash2_mlx.targets.sliding import SlidingTarget

_FAMILIES: dict[str, type[LayeredTarget]] = {
    "qwen3_5": HybridTarget,
    "qwen3_5_moe": HybridTarget,
    "qwen3": AttentionTarget,
    "llama": AttentionTarget,
    "muse_glimmer": SlidingTarget,
}
_OWN_CACHES: dict[type[LayeredTarget], set[str]] = {HybridTarget: {"ArraysCache"}, SlidingTarget: {"WindowCache"}}


def target_family(model_type: object) -> type[LayeredTarget]:
    """The target class for a config's `model_type`, known before any weight is read.

    Raises: UnsupportedError naming the architecture.
    """
    family = _FAMILIES.get(str(model_type))
    if family is None:
        raise UnsupportedError(
            f"the target's model_type is {model_type!r}, whose cache this package cannot roll back exactly. "
            f"Use one of {', '.join(_FAMILIES)}, or plain mlx-lm."
        )
    return family


def build_target(model: Any, model_type: object, taps: tuple[int, ...] = (), *, chip_family: str = "") -> LayeredTarget:
    """The target around a loaded mlx-lm `model`, with features after the layers `taps`. chip_family: see Machine.

    Raises: UnsupportedError where its caches are not the family's own (sliding windows in a `llama`, say).
    """
    family = target_family(model_type)
    target = family(getattr(model, "language_model", model), taps)
    kinds = {type(cache).__name__ for cache in target.cache.layers}
    known = {"KVCache"} | _OWN_CACHES.get(family, set())
    if not kinds <= known:
        raise UnsupportedError(
            f"this {model_type} target uses {', '.join(sorted(kinds - known))}, which cannot be rolled back exactly. "
            "Use a target without it, or plain mlx-lm."
        )
    target.pace = Pace(smallest_chunk(target.head_dim, chip_family))
    return target
