"""The engines that peer_runner.py serves: token ids in, token ids out. Each imports its package when it is made."""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import mlx.core as mx


class Engine(Protocol):
    """What is asked of every engine: greedy tokens, as they come, in groups.

    block_size None = plain decoding, for a rival package what it takes by itself. An engine that knows better what
    the runner would measure (see `timed`) leaves it in an attribute `told`.
    """

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


class OurEngine:
    """This package at the level where the others are called: token ids in, token ids out."""

    def __init__(self, model: str, draft: str) -> None:
        from dflash2_mlx.api import load

        self._pair = load(model, draft, draft_bits=16)

    def generate(
        self, prompt: list[int], max_tokens: int, block_size: int | None, end: frozenset[int]
    ) -> Iterator[tuple[int, ...]]:
        from dflash2_mlx.config import EngineParams, SamplingParams
        from dflash2_mlx.engine.loop import decode
        from dflash2_mlx.engine.progress import Task
        from dflash2_mlx.engine.steps import decode_plain
        from dflash2_mlx.events import Round

        target, drafter = self._pair.target, self._pair.drafter
        assert drafter is not None
        params = EngineParams(max_tokens=max_tokens, block_size=block_size, end_tokens=end)
        target.reset()
        drafter.reset()
        if block_size is None:
            events = decode_plain(target, Task(prompt, SamplingParams(), params))
        else:
            events = decode(target, drafter, Task(prompt, SamplingParams(), params))
        for event in events:
            if isinstance(event, Round):
                yield event.tokens

    def take_in(self, prompt: list[int]) -> None:
        """Have the drafter take in what it was shown of `prompt`, which `generate` has just answered."""
        drafter = self._pair.drafter
        assert drafter is not None
        mx.eval(drafter.propose(mx.array(prompt[-1:], dtype=mx.int32), 1).tokens)

    def render(self, prompts: list[str]) -> dict[str, Any]:
        """Token ids of chat prompts with thinking off, and every id that ends an answer."""
        from dflash2_mlx.config import SamplingParams, TextParams
        from dflash2_mlx.session.session import Request, render

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


class MlxVlmEngine:
    """mlx-vlm's own loop, which yields token by token and chooses its blocks by recent acceptance.

    With a block size it is at its best, not as it comes: held at that size by the attribute with which its drafters
    ask for that, and with its own selector, which its greedy loop passes over (`DFlash2DraftModel` inherits
    `draft_block_greedy` from the DFlash 1 drafter).
    """

    def __init__(self, model: str, draft: str) -> None:
        from mlx_vlm.generate import generate_step  # type: ignore[import-not-found]
        from mlx_vlm.speculative.drafters import load_drafter  # type: ignore[import-not-found]
        from mlx_vlm.utils import load_model  # type: ignore[import-not-found]

        self._generate_step = generate_step
        with tempfile.TemporaryDirectory() as folder:
            self._model = load_model(as_mlx_vlm_reads_it(Path(model), Path(folder)))
        self._drafter, self._kind = load_drafter(draft)
        self._greedy = getattr(self._drafter, "draft_block_greedy", self._drafter.draft_block)
        self.told: dict[str, Any] = {}

    def generate(
        self, prompt: list[int], max_tokens: int, block_size: int | None, end: frozenset[int]
    ) -> Iterator[tuple[int, ...]]:
        as_it_comes = block_size is None
        self._drafter.prefer_requested_block_size = not as_it_comes
        self._drafter.draft_block_greedy = self._greedy if as_it_comes else self._drafter.draft_block
        for token, _ in self._generate_step(
            mx.array([prompt]),
            self._model,
            None,
            None,
            max_tokens=max_tokens,
            temperature=0.0,
            draft_model=self._drafter,
            draft_kind=self._kind,
            draft_block_size=block_size,
        ):
            yield (int(token),)
            if token in end:
                break
        self.told = {"groups": 1 + len(self._drafter.accept_lens)}


def as_mlx_vlm_reads_it(model: Path, folder: Path) -> Path:
    """`model`, or for a Qwen3.5 target without a vision part a copy in `folder` with the same numbers.

    mlx-vlm has such targets under `qwen3_5_text`, wants a `mrope_section` (text has one position for all its three
    parts, so that any division is the same), and adds 1 to the norms of tensors without its `language_model.`.
    """
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    if config["model_type"] != "qwen3_5" or "vision_config" in config:
        return model
    text = {**config.get("text_config", config), "model_type": "qwen3_5_text"}
    pairs = int(text["head_dim"] * text["rope_parameters"]["partial_rotary_factor"]) // 2
    sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    text["rope_parameters"] = {"mrope_section": sections, **text["rope_parameters"]}
    (folder / "config.json").write_text(json.dumps(text), encoding="utf-8")
    for path in model.glob("*.safetensors"):
        weights = mx.load(str(path))
        assert isinstance(weights, dict)
        mx.save_safetensors(
            str(folder / path.name),
            {f"language_model.{name.removeprefix('language_model.')}": part for name, part in weights.items()},
        )
    return folder


class MlxDsparkEngine:
    """mlx-dspark's loop for DFlash drafters as its library offers it: no n-gram drafts, no width controller.

    It answers when it is done, so the time of the first token is its own. It may run past `max_tokens` within its
    last round; what is over is cut.
    """

    def __init__(self, model: str, draft: str) -> None:
        from mlx_dspark.generate import dflash_generate  # type: ignore[import-not-found]
        from mlx_dspark.load import load_dflash, load_target  # type: ignore[import-not-found]

        self._dflash_generate = dflash_generate
        self._target, _ = load_target(model, require_tap=True)
        self._drafter, _ = load_dflash(draft, quantize=False)
        self.told: dict[str, Any] = {}

    def generate(
        self, prompt: list[int], max_tokens: int, block_size: int | None, end: frozenset[int]
    ) -> Iterator[tuple[int, ...]]:
        ids_only = SimpleNamespace(eos_token_ids=sorted(end), convert_tokens_to_ids=lambda _: None, decode=lambda _: "")
        answer = self._dflash_generate(
            self._target,
            ids_only,
            self._drafter,
            prompt_ids=prompt,
            max_new_tokens=max_tokens,
            max_draft_tokens=None if block_size is None else block_size - 1,
        )
        self.told = {"first_s": answer.prefill_seconds}
        at = 0
        for length in (1, *answer.accept_lengths):
            yield tuple(answer.token_ids[at : min(at + length, max_tokens)])
            at += length


ENGINES: dict[str, Callable[[str, str], Any]] = {
    "authors": AuthorsEngine,
    "mlx-vlm": MlxVlmEngine,
    "mlx-dspark": MlxDsparkEngine,
    "mlx-lm": MlxLmEngine,
    "ours": OurEngine,
}
