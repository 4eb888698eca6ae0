"""Serves one engine over JSON lines, for bench_peers.py and count_nodes.py: `python peer_runner.py ENGINE ...`.

ENGINE is `authors` (the package dflash, in a Python of its own), `mlx-lm` or `ours`. Every line on stdin is a
command, every line on stdout its answer. Imports of an engine happen in its own process only.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import mlx.core as mx


class Engine(Protocol):
    """What is asked of every engine: greedy tokens, as they come, in groups; block_size None = plain decoding."""

    def generate(
        self, prompt: list[int], max_tokens: int, block_size: int | None, end: frozenset[int]
    ) -> Iterator[tuple[int, ...]]: ...


class MlxLmEngine:
    """Plain decoding by mlx-lm, its next step launched before a token is read."""

    def __init__(self, model: str, draft: str) -> None:
        from mlx_lm.utils import load_model

        self._model, _ = load_model(Path(model))

    def generate(
        self, prompt: list[int], max_tokens: int, block_size: int | None, end: frozenset[int]
    ) -> Iterator[tuple[int, ...]]:
        from mlx_lm.generate import generate_step

        for token, _ in generate_step(mx.array(prompt), self._model, max_tokens=max_tokens):
            yield (int(token),)
            if token in end:
                return

    def prefill(self, prompt: list[int]) -> None:
        """Take the prompt in and give one token."""
        next(self.generate(prompt, 1, None, frozenset()))


class OurEngine:
    """This package at the level where the others are called: token ids in, token ids out."""

    def __init__(self, model: str, draft: str) -> None:
        from dflash2_mlx.api import load

        self._pair = load(model, draft, draft_bits=16)

    def generate(
        self, prompt: list[int], max_tokens: int, block_size: int | None, end: frozenset[int]
    ) -> Iterator[tuple[int, ...]]:
        from dflash2_mlx.config import EngineParams, SamplingParams
        from dflash2_mlx.engine.baseline import decode_plain
        from dflash2_mlx.engine.loop import decode
        from dflash2_mlx.events import Round

        target, drafter = self._pair.target, self._pair.drafter
        assert drafter is not None
        params = EngineParams(max_tokens=max_tokens, block_size=block_size, end_tokens=end)
        target.reset()
        drafter.reset()
        if block_size is None:
            events = decode_plain(target, prompt, SamplingParams(), params)
        else:
            events = decode(target, drafter, prompt, SamplingParams(), params)
        for event in events:
            if isinstance(event, Round):
                yield event.tokens

    def prefill(self, prompt: list[int]) -> None:
        """Take the prompt in, give one token, and have the drafter take in what it is shown."""
        drafter = self._pair.drafter
        assert drafter is not None
        list(self.generate(prompt, 1, drafter.block_size, frozenset()))
        mx.eval(drafter.propose(mx.array(prompt[-1:], dtype=mx.int32), 1).tokens)

    def render(self, prompts: list[str]) -> dict[str, Any]:
        """Token ids of chat prompts with thinking off, and every id that ends an answer."""
        from dflash2_mlx.config import SamplingParams, TextParams
        from dflash2_mlx.session import Request, render

        text = TextParams(reasoning="off")
        ids = [list(render(self._pair, Request(p, SamplingParams(), text=text)).tokens) for p in prompts]
        return {
            "prompts": ids,
            "end_tokens": sorted(self._pair.end_tokens),
            "vocab_size": self._pair.target.vocab_size,
            "block_size": self._pair.drafter.block_size if self._pair.drafter else 1,
        }


class _Silent:
    """A detokenizer that makes no text, since no other engine here makes any."""

    last_segment = ""

    def add_token(self, token: int) -> None: ...

    def finalize(self) -> None: ...


class AuthorsEngine:
    """The authors' MLX backend, its look-up on the Hub answered with the local folder."""

    def __init__(self, model: str, draft: str) -> None:
        from dflash import model_mlx  # type: ignore[import-not-found]
        from mlx_lm.tokenizer_utils import TokenizerWrapper

        class IdsOnly(TokenizerWrapper):  # type: ignore[misc]
            detokenizer = _Silent()

            def __init__(self) -> None:
                object.__setattr__(self, "_eos_token_ids", set())

            @property
            def eos_token_ids(self) -> frozenset[int]:
                return frozenset(self._eos_token_ids)

        model_mlx.snapshot_download = lambda folder, **_: folder
        self._package = model_mlx
        self._tokenizer = IdsOnly()
        self._model, _ = model_mlx.load(model)
        self._draft = model_mlx.load_draft(draft)

    def generate(
        self, prompt: list[int], max_tokens: int, block_size: int | None, end: frozenset[int]
    ) -> Iterator[tuple[int, ...]]:
        object.__setattr__(self._tokenizer, "_eos_token_ids", set(end))
        for response in self._package.stream_generate(
            self._model, self._draft, self._tokenizer, mx.array(prompt), block_size=block_size, max_tokens=max_tokens
        ):
            if response.tokens:
                yield tuple(response.tokens)


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
    }


def prefilled(engine: Any, command: dict[str, Any]) -> dict[str, Any]:
    """Seconds to take a prompt in."""
    mx.synchronize()
    started = time.perf_counter()
    engine.prefill(command["prompt"])
    seconds = time.perf_counter() - started
    mx.synchronize()
    return {"seconds": seconds}


def versions(*_: Any) -> dict[str, Any]:
    """Versions of the packages in this process."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("mlx", "mlx-lm", "dflash", "dflash2-mlx"):
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


ENGINES: dict[str, Callable[[str, str], Any]] = {
    "authors": AuthorsEngine,
    "mlx-lm": MlxLmEngine,
    "ours": OurEngine,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--model", default="")
    parser.add_argument("--draft", default="")
    options = parser.parse_args()
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a package prints must not mix with the answers
    engine = ENGINES[options.engine](options.model, options.draft) if options.model else None
    handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
        "versions": versions,
        "generate": lambda command: timed(engine, command),  # type: ignore[arg-type]
        "prefill": lambda command: prefilled(engine, command),
        "render": lambda command: engine.render(command["prompts"]),  # type: ignore[union-attr]
        "count": count_authors_draft,
    }
    for line in sys.stdin:
        command = json.loads(line)
        print(json.dumps(handlers[command["do"]](command)), file=answers, flush=True)


if __name__ == "__main__":
    main()
