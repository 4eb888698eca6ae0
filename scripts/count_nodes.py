"""How many nodes a round's graphs have: what a Metal device would have to launch. Nothing is computed.

`python scripts/count_nodes.py [--pair DIR] [--peer-venvs DIR]`: one greedy draft and one verify forward, for the
bundled pair's sizes and for Qwen3.8-27B with its DFlash 2 drafter. The last line is JSON.
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from graph_nodes import count, cut_history, empty_weights, fused_operations, held, leaf
from mlx.utils import tree_flatten
from peer_process import Runner, peer_python

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.engine.accept import judge_same
from dflash2_mlx.engine.sampling import Sampler
from dflash2_mlx.models.config import parse_drafter_config
from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.models.selector import Draw
from dflash2_mlx.store.published import QWEN_DRAFTER, QWEN_TARGET
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.families import build_target

BLOCK_SIZE = 5
SAMPLED = SamplingParams(temperature=0.7, top_k=20, top_p=0.95, seed=1)
NEW_ROWS = 4  # context rows that a round brings
SHORT_CONTEXT = 100
DEMO = Path(__file__).parents[1] / "dflash2_mlx" / "demo"


@dataclass(frozen=True, slots=True)
class Size:
    """A pair by its two configs."""

    name: str
    target: dict[str, Any]
    drafter: dict[str, Any]
    dtype: mx.Dtype
    quantized: bool


def empty_target(size: Size) -> LayeredTarget:
    """The target with leaves for weights."""
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(size.target)
    model = model_class(args_class.from_dict(size.target))
    if size.quantized:
        nn.quantize(model, group_size=64, bits=4)
    empty_weights(model, size.dtype)
    taps = parse_drafter_config(size.drafter, size.name).target_layer_ids
    return build_target(model, size.target["model_type"], taps)


def verify_nodes(target: LayeredTarget, rows: int) -> Counter[str]:
    """Nodes of a verify forward over `rows` rows, greedy tokens and features included."""
    target.reset()
    for _ in range(2):  # the second is the usual one: its caches exist
        cut_history(target.cache.layers)
        with fused_operations() as stand_ins:
            forward = target.verify(leaf((rows,), mx.int32))
            assert forward.features is not None
            outputs = [mx.argmax(forward.logits, axis=-1), forward.features, *held(target.cache.layers)]
            nodes = count(outputs, stand_ins)
        target.commit(rows)
    return nodes


def empty_drafter(size: Size, target: LayeredTarget) -> DFlashDrafter:
    """The pair's drafter without a single weight."""
    config = parse_drafter_config(size.drafter, size.name)
    network = DraftNetwork(config)
    empty_weights(network, size.dtype)
    return DFlashDrafter(config, network, target.embed, target.head)


def draft_nodes(size: Size, target: LayeredTarget, context: int) -> tuple[Counter[str], dict[str, list[int]]]:
    """Nodes of one greedy draft with `context` rows in the cache and NEW_ROWS new ones; the drafter's tensors."""
    drafter = empty_drafter(size, target)
    shapes = {name: list(part.shape) for name, part in tree_flatten(drafter.network.parameters())}
    width = len(drafter.config.target_layer_ids) * drafter.config.hidden_size
    end = 0
    for rows in (context, NEW_ROWS):
        end += rows
        drafter.observe(leaf((rows, width), size.dtype), end)
        cut_history(drafter.cache.layers)
        with fused_operations() as stand_ins:
            draft = drafter.propose(leaf((1,), mx.int32), BLOCK_SIZE - 1)
            nodes = count([draft.tokens, *held(drafter.cache.layers)], stand_ins)
    return nodes, shapes


def choosing_nodes(size: Size, target: LayeredTarget, sampling: SamplingParams) -> int:
    """Nodes of one round's draft and verdict, the target's pass left out."""
    drafter, sampler = empty_drafter(size, target), Sampler(sampling, target.vocab_size, [1])
    drafter.observe(leaf((NEW_ROWS, len(target.taps) * target.hidden_size), size.dtype), NEW_ROWS)
    with fused_operations() as stand_ins:
        noise = sampler.noise(1, BLOCK_SIZE)
        draw = None if noise is None else Draw(sampling.temperature, noise[: BLOCK_SIZE - 1])
        draft = drafter.propose(leaf((1,), mx.int32), BLOCK_SIZE - 1, draw)
        verdict = judge_same(leaf((BLOCK_SIZE, target.vocab_size), size.dtype), draft, noise, sampler)
        return sum(count([verdict.packed, draft.tokens], stand_ins).values())


def peer_nodes(runner: Runner, size: Size, context: int, shapes: dict[str, list[int]]) -> Counter[str]:
    """Nodes of the authors' draft under the same conditions."""
    answer = runner.ask(
        "count",
        config=size.drafter,
        shapes=shapes,
        embedding=[size.target["vocab_size"], size.target["hidden_size"]],
        dtype="bfloat16" if size.dtype == mx.bfloat16 else "float32",
        quantized=size.quantized,
        context=context,
        new=NEW_ROWS,
        block_size=BLOCK_SIZE,
    )
    return Counter(answer["nodes"])


def show(title: str, nodes: Counter[str], detail: bool) -> int:
    """Print a count, its kinds where asked for; the sum."""
    total = sum(nodes.values())
    print(f"  {title:<42} {total:>5}")
    if detail:
        print("    " + ", ".join(f"{kind} {number}" for kind, number in nodes.most_common()))
    return total


def measure(size: Size, runner: Runner | None, detail: bool) -> dict[str, int]:
    """All counts of one pair, printed and by name."""
    print(f"{size.name}:")
    target, found = empty_target(size), {}
    for rows in (1, BLOCK_SIZE):
        found[f"verify_{rows}"] = show(f"verify forward, {rows} rows", verify_nodes(target, rows), detail)
    greedy, sampled = (choosing_nodes(size, target, settings) for settings in (SamplingParams(), SAMPLED))
    found["sampled_extra"] = sampled - greedy
    print(f"  {'what sampling adds to a round':<42} {found['sampled_extra']:>5}")
    for name, context in (("short", SHORT_CONTEXT), ("full_window", 2 * size.drafter["sliding_window"])):
        nodes, shapes = draft_nodes(size, target, context)
        where = f"draft of block {BLOCK_SIZE}, {context} rows before"
        found[f"draft_{name}"] = show(where, nodes, detail)
        if runner is not None:
            theirs = peer_nodes(runner, size, context, shapes)
            found[f"authors_draft_{name}"] = show("the authors' package, the same", theirs, detail)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, default=DEMO, help="folder with target/ and drafter/ (default: bundled)")
    parser.add_argument("--peer-venvs", type=Path, help="also count the authors' package, installed under this folder")
    parser.add_argument("--detail", action="store_true", help="print the nodes by kind")
    options = parser.parse_args()
    if not (options.pair / "drafter" / "config.json").exists():
        parser.error(f"{options.pair} holds no drafter/config.json: give --pair a folder with target/ and drafter/.")
    runner = None
    if options.peer_venvs:
        python, note = peer_python(options.peer_venvs, "authors")
        print(f"peer: {note}")
        runner = Runner(python, "authors") if python else None
    configs = [json.loads((options.pair / part / "config.json").read_text()) for part in ("target", "drafter")]
    sizes = (
        Size("bundled pair, float32", configs[0], configs[1], mx.float32, False),
        Size("Qwen3.8-27B 4-bit, DFlash 2 drafter", dict(QWEN_TARGET), dict(QWEN_DRAFTER), mx.bfloat16, True),
    )
    print("nodes of the graph, views left out; fused operations and the gated-delta recurrence are one node each\n")
    found = {size.name: measure(size, runner, options.detail) for size in sizes}
    if runner is not None:
        runner.close()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
