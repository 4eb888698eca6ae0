"""Counts what a lazy MLX graph would launch, for count_nodes.py, full_size.py and peer_runner.py. Knows mlx only.

Nothing is computed: weights are broadcasts of one zero, so a 27B graph takes no memory.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

# Operations that only describe their input anew: on Metal they share its buffer and launch nothing. `Reshape` and
# `Flatten` copy where the input's rows do not lie side by side; both sides of a comparison have the same such
# places (heads back to rows after attention, which is contiguous on Metal), so they are views here. `Split` and
# `Slice` share the buffer. Not views, though small: `AsType`, `Contiguous`, `SliceUpdate`, `Concatenate`, `Pad`,
# `Full` and `Arange`.
VIEW_OPS = frozenset(
    {
        "AsStrided",
        "Broadcast",
        "BroadcastAxes",
        "Copy",
        "ExpandDims",
        "Flatten",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "StopGradient",
        "Transpose",
        "Unflatten",
        "View",
    }
)
NOTHING_LAUNCHED = (mx, "async_eval", lambda *_: None)  # for `swapped`: the graph stays whole
_NODE = re.compile(r'\{ \d+ \[label ="([^"]+)"')
_STAND_IN = "Depends"


class StandIns:
    """Counts the fused operations by kind while each is one node of the graph."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def node(self, kind: str, outputs: list[mx.array], inputs: list[Any]) -> list[mx.array]:
        """`outputs` as results of one node that also waits for the arrays among `inputs`."""
        self.calls[kind] += 1
        arrays = [part for part in inputs if isinstance(part, mx.array)]
        return list(mx.depends(outputs, arrays or outputs))

    def rms_norm(self, x: mx.array, weight: mx.array | None, eps: float, **_: Any) -> mx.array:
        return self.node("RMSNorm", [x], [weight])[0]

    def rope(self, a: mx.array, *_: Any, offset: Any = None, freqs: Any = None, **__: Any) -> mx.array:
        return self.node("RoPE", [a], [offset, freqs])[0]

    def attention(self, q: mx.array, k: mx.array, v: mx.array, *, mask: Any = None, **_: Any) -> mx.array:
        assert q.shape[-1] == v.shape[-1]
        return self.node("Attention", [q], [k, v, mask])[0]

    def dequantize(self, w: mx.array, scales: mx.array, biases: mx.array | None = None, *_: Any, **options: Any) -> Any:
        shape = (*w.shape[:-1], w.shape[-1] * 32 // options["bits"])
        return self.node("Dequantize", [mx.broadcast_to(scales[..., :1], shape)], [w, biases])[0]

    def gated_delta(
        self, q: mx.array, k: mx.array, v: mx.array, g: mx.array, beta: mx.array, state: mx.array, *mask: Any
    ) -> tuple[mx.array, mx.array]:
        out, after = self.node("GatedDelta", [v, state], [q, k, g, beta, *mask])
        return out, after


@contextmanager
def swapped(*replaced: tuple[Any, str, Any]) -> Iterator[None]:
    """Put every (place, name, stand-in) in force. These scripts alone replace parts of other packages, and undo it."""
    originals = [getattr(place, name) for place, name, _ in replaced]
    for place, name, stand_in in replaced:
        setattr(place, name, stand_in)
    try:
        yield
    finally:
        for (place, name, _), original in zip(replaced, originals, strict=True):
            setattr(place, name, original)


@contextmanager
def fused_operations() -> Iterator[StandIns]:
    """Fused operations as one node each, as on Metal.

    The CPU expands rms_norm to 11 nodes, rope to 30, attention to 9, dequantize and, row by row, the gated-delta
    recurrence to more, which would hide what is counted.
    """
    from mlx_lm.models import gated_delta

    from dflash2_mlx.targets import hybrid

    stand_ins = StandIns()
    with swapped(
        (mx.fast, "rms_norm", stand_ins.rms_norm),
        (mx.fast, "rope", stand_ins.rope),
        (mx.fast, "scaled_dot_product_attention", stand_ins.attention),
        (mx, "dequantize", stand_ins.dequantize),
        (gated_delta, "gated_delta_ops", stand_ins.gated_delta),
        (hybrid, "has_kernel", lambda _: True),  # take the path that Metal takes
        NOTHING_LAUNCHED,
    ):
        yield stand_ins


def count(outputs: list[mx.array], stand_ins: StandIns) -> Counter[str]:
    """How many nodes of each kind the unevaluated `outputs` need, views left out."""
    dot = io.StringIO()
    mx.export_to_dot(dot, *outputs)
    kinds = Counter(_NODE.findall(dot.getvalue()))  # a compiled function has one id for all its calls: no set
    for name in list(kinds):
        if name in VIEW_OPS:
            del kinds[name]
        elif name.startswith("Compiled"):
            kinds["Compiled"] += kinds.pop(name)
    assert kinds[_STAND_IN] <= sum(stand_ins.calls.values())
    if kinds[_STAND_IN] == sum(stand_ins.calls.values()):  # else some fused result is not needed by the outputs
        del kinds[_STAND_IN]
        kinds.update(stand_ins.calls)
    return kinds


def leaf(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """An evaluated array of any size that takes no memory."""
    array = mx.broadcast_to(mx.zeros((), dtype=dtype), shape)
    mx.eval(array)
    return array


def leaf_like(array: mx.array, dtype: mx.Dtype | None = None) -> mx.array:
    """`leaf` with the shape and type of `array`; floating types become `dtype` where given."""
    floating = mx.issubdtype(array.dtype, mx.floating)
    return leaf(tuple(array.shape), dtype if dtype is not None and floating else array.dtype)


def empty_weights(module: nn.Module, dtype: mx.Dtype) -> None:
    """Make every weight of `module` a leaf; the initial values are never computed."""
    module.update(tree_map(lambda part: leaf_like(part, dtype), module.parameters()))
    module.eval()


def cut_history(caches: list[Any]) -> None:
    """Make what the caches hold a leaf, so that only what comes next is counted."""
    for cache in caches:
        for name, value in list(vars(cache).items()):
            if isinstance(value, mx.array):
                setattr(cache, name, leaf_like(value))
            elif isinstance(value, list):
                setattr(cache, name, [leaf_like(v) if isinstance(v, mx.array) else v for v in value])


def held(caches: list[Any]) -> list[mx.array]:
    """The arrays that the caches hold: what the next step needs."""
    found: list[mx.array] = []
    for cache in caches:
        for value in vars(cache).values():
            found += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, mx.array)]
    return found
