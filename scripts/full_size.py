"""Build the full-size pairs from their configs without evaluating a weight, run one round symbolically, count bytes.

`python scripts/full_size.py`. MLX is lazy, so shapes, dtypes and byte counts of the real graphs can be checked on any
machine in seconds. Exit 1 where a figure differs from the published one. The last line is JSON.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from graph_nodes import NOTHING_LAUNCHED, swapped
from mlx.utils import tree_flatten

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.engine.accept import judge_same
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.loading.checks import check_fit
from dflash2_mlx.models.config import parse_drafter_config
from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.store.published import MUSE_DRAFTER, MUSE_TARGET, QWEN_DRAFTER, QWEN_TARGET
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.families import build_target


@dataclass(frozen=True)
class Pair:
    """A published pair: both configs, and figures that are public."""

    name: str
    target: Mapping[str, object]
    drafter: Mapping[str, object]
    published: Mapping[str, int]


PAIRS = (
    Pair(
        "Qwen3.8-27B",
        QWEN_TARGET,
        QWEN_DRAFTER,
        {
            "target bytes, 4-bit": 15_132_802_048,
            "drafter parameters": 1_924_404_480,
            "drafter tensors": 81,
            "KV bytes a token": 65_536,
            "feature bytes a token": 51_200,
        },
    ),
    Pair("Muse-Glimmer-30B", MUSE_TARGET, MUSE_DRAFTER, {"drafter parameters": 2_772_159_744}),
)


def lazy_target(config: Mapping[str, object], taps: tuple[int, ...], bits: int | None) -> LayeredTarget:
    """The target in bf16, or quantised to `bits`, with weights that are never evaluated."""
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(dict(config))
    model = model_class(args_class.from_dict(dict(config)))
    model.set_dtype(mx.bfloat16)
    if bits:
        nn.quantize(model, group_size=64, bits=bits)
    return build_target(model, config["model_type"], taps)


def lazy_drafter(config: Mapping[str, object], target: LayeredTarget, source: Mapping[str, object]) -> DFlashDrafter:
    """The drafter in bf16 with weights that are never evaluated, checked against the target's config."""
    from pathlib import Path

    parsed = parse_drafter_config(config, "config.json")
    check_fit(parsed, source, Path("target"))
    network = DraftNetwork(parsed)
    network.set_dtype(mx.bfloat16)
    return DFlashDrafter(parsed, network, target.embed, target.head)


def tensor_bytes(module: nn.Module) -> int:
    """Bytes of all parameters."""
    return sum(tensor.nbytes for _, tensor in tree_flatten(module.parameters()))


def symbolic_round(target: LayeredTarget, drafter: DFlashDrafter, rows: int) -> dict[str, str]:
    """Prefill, draft, verify, accept and commit without evaluating anything; shapes and dtypes by name."""
    _, features = target._run(mx.arange(32), keep=None)
    target.cache.position = 32
    assert features is not None
    drafter.observe(features, 32)
    anchor = mx.array([1], dtype=mx.int32)
    draft = drafter.propose(anchor, rows - 1)
    forward = target.verify(mx.concatenate([anchor, draft.tokens.astype(mx.int32)]))
    verdict = judge_same(forward.logits, draft, None, Sampler(SamplingParams(), target.vocab_size, [1]))
    target.commit(3)
    assert forward.features is not None
    drafter.observe(forward.features[:3], 35)
    again = drafter.propose(verdict.tokens[2:3], rows - 1)
    arrays = {
        "features": forward.features,
        "draft": draft.tokens,
        "logits": forward.logits,
        "verdict": verdict.packed,
        "next draft": again.tokens,
    }
    return {name: f"{list(array.shape)} {str(array.dtype).removeprefix('mlx.core.')}" for name, array in arrays.items()}


def measure(pair: Pair, bits: int | None) -> tuple[dict[str, int], dict[str, str]]:
    """The pair's byte counts, and the shapes of one symbolic round of 5 rows."""
    parsed = parse_drafter_config(pair.drafter, "config.json")
    target = lazy_target(pair.target, parsed.target_layer_ids, bits)
    drafter = lazy_drafter(pair.drafter, target, pair.target)
    with swapped(NOTHING_LAUNCHED):
        shapes = symbolic_round(target, drafter, 5)
    tensors = tree_flatten(drafter.network.parameters())
    growing = [cache for cache in target.cache.layers if type(cache).__name__ == "KVCache"]
    fixed = [cache for cache in target.cache.layers if type(cache).__name__ == "ArraysCache"]
    precision = f"{bits}-bit" if bits else "bf16"
    return {
        f"target bytes, {precision}": tensor_bytes(target.module),
        "drafter parameters": sum(tensor.size for _, tensor in tensors),
        "drafter tensors": len(tensors),
        "drafter bytes, bf16": tensor_bytes(drafter.network),
        "KV bytes a token": sum(c.nbytes // c.keys.shape[2] for c in growing),
        "recurrent state bytes": sum(int(c.nbytes) for c in fixed),
        "feature bytes a token": 2 * len(target.taps) * target.hidden_size,
    }, shapes


def main() -> int:
    mx.set_default_device(mx.cpu)
    began, failed, report = time.perf_counter(), False, {}
    for pair in PAIRS:
        for bits in (4, None):
            figures, shapes = measure(pair, bits)
            print(f"{pair.name}, {f'{bits}-bit' if bits else 'bf16'} target")
            for name, value in figures.items():
                wanted = pair.published.get(name)
                bad = wanted not in (None, value)
                failed |= bad
                print(
                    f"  {name:<24} {value:>18,}{f'  published: {wanted:,}' if wanted else ''}{'  WRONG' if bad else ''}"
                )
            for name, shape in shapes.items():
                print(f"  {name:<24} {shape:>18}")
            report[f"{pair.name} {bits or 16}"] = figures
    seconds, active = time.perf_counter() - began, mx.get_active_memory()
    print(f"{seconds:.1f} s, {active / 2**20:.1f} MiB of MLX memory in use")
    print(json.dumps({"seconds": round(seconds, 2), "active_bytes": active, "figures": report}))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
