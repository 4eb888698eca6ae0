"""Serves one engine over JSON lines, for bench_peers.py and count_nodes.py: `python peer_runner.py ENGINE ...`.

ENGINE is a name of peer_engines.py. Every line on stdin is a command, every line on stdout its answer, or
`{"error": reason}`. Imports of an engine happen in its own process only.
"""

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from peer_engines import ENGINES, Engine


def timed(engine: Engine, command: dict[str, Any]) -> dict[str, Any]:
    """One answer: its tokens, groups, the seconds of the whole call and those up to the first token."""
    end = frozenset(command["end_tokens"])
    groups: list[tuple[int, ...]] = []
    first = None
    mx.synchronize()
    started = time.perf_counter()
    for group in engine.generate(command["prompt"], command["max_tokens"], command["block_size"], end):
        first = first or time.perf_counter()
        groups.append(group)
    stopped = time.perf_counter()
    mx.synchronize()  # a step launched ahead must not run into the next engine's time
    return {
        "tokens": [token for group in groups for token in group],
        "groups": len(groups),
        "seconds": stopped - started,
        "first_s": (first or stopped) - started,
        **getattr(engine, "told", {}),
    }


def prefilled(engine: Any, command: dict[str, Any]) -> dict[str, Any]:
    """Seconds from a prompt to its first token and, of ours, until the drafter has taken in what it was shown."""
    mx.synchronize()
    started = time.perf_counter()
    list(engine.generate(command["prompt"], 1, 2, frozenset()))
    seconds = {"first_token": time.perf_counter() - started}
    if hasattr(engine, "take_in"):
        engine.take_in(command["prompt"])
        seconds["drafter_too"] = time.perf_counter() - started
    mx.synchronize()
    return seconds


def versions(*_: Any) -> dict[str, Any]:
    """Versions of the packages in this process."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("mlx", "mlx-lm", "dflash", "mlx-vlm", "mlx-dspark", "dflash2-mlx"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {"versions": found, "python": sys.version.split()[0]}


def count_authors_draft(command: dict[str, Any]) -> dict[str, Any]:
    """Nodes of one draft of the authors' package, for a drafter of the given config and tensor shapes."""
    import graph_nodes
    from dflash import model_mlx
    from mlx import nn

    dtype = mx.bfloat16 if command["dtype"] == "bfloat16" else mx.float32
    weights = {name: graph_nodes.leaf(tuple(shape), dtype) for name, shape in command["shapes"].items()}
    vocab, hidden = command["embedding"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(command["config"]), encoding="utf-8")
        (Path(folder) / "model.safetensors").touch()
        model_mlx.snapshot_download = lambda path, **_: path
        load, mx.load = mx.load, lambda *_: dict(weights)
        try:
            draft = model_mlx.load_draft(folder)
        finally:
            mx.load = load
    lent = nn.Module()
    lent.embed_tokens, lent.lm_head = nn.Embedding(vocab, hidden), nn.Linear(hidden, vocab, bias=False)
    if command["quantized"]:
        nn.quantize(lent, group_size=64, bits=4)
    graph_nodes.empty_weights(lent, dtype)
    draft.bind(SimpleNamespace(embed_tokens=lent.embed_tokens, lm_head=lent.lm_head))
    return {"nodes": _authors_round(draft, command, graph_nodes, dtype)}


def _authors_round(draft: Any, command: dict[str, Any], graph_nodes: Any, dtype: mx.Dtype) -> dict[str, int]:
    """One greedy draft after `context` rows that are in the cache, with `new` rows that are not."""
    width = len(draft.config.target_layer_ids) * draft.config.hidden_size
    caches = draft.make_cache()
    block = mx.array([[1] + [draft.config.mask_token_id] * (command["block_size"] - 1)])
    for rows in (command["context"], command["new"]):  # the second draft is the usual one: its buffers exist
        graph_nodes.cut_history(caches)
        features = graph_nodes.leaf((1, rows, width), dtype)
        with graph_nodes.fused_operations() as stand_ins:
            tokens, _, _ = draft.propose(block, features, caches, 0.0, logits_start=1)
            nodes = graph_nodes.count([tokens, *graph_nodes.held(caches)], stand_ins)
    return dict(nodes)


def reason(error: Exception) -> str:
    """What went wrong and where, on one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ({Path(frame.filename).name}:{frame.lineno})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--model", default="")
    parser.add_argument("--draft", default="")
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a package prints must not mix with the answers

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        engine = ENGINES[options.engine](options.model, options.draft) if options.model else None
    except Exception as error:
        return say({"error": reason(error)})
    handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "versions": versions,
        "generate": lambda command: timed(engine, command),
        "prefill": lambda command: prefilled(engine, command),
        "render": lambda command: engine.render(command["prompts"]),
        "count": count_authors_draft,
    }
    for line in sys.stdin:
        command = json.loads(line)
        try:
            say(handlers[command["do"]](command))
        except Exception as error:
            say({"error": reason(error)})
    return None


if __name__ == "__main__":
    main()
