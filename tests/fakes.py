"""Tiny random targets, scripted drafters and a toy target for the tests. No downloads, no trained weights."""

import random
from collections.abc import Iterator, Mapping, Sequence

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.engine.steps import decode_plain
from dflash2_mlx.events import Ended, Round
from dflash2_mlx.models.config import DrafterConfig, parse_drafter_config
from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.models.selector import Draft, Draw
from dflash2_mlx.targets.base import Forward, LayeredTarget
from dflash2_mlx.targets.families import build_target

VOCAB = 512
TAPS = (1, 3, 6)

_SHARED = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
TARGET_CONFIGS: dict[str, dict[str, object]] = {
    "qwen3_5": {
        **_SHARED,
        "model_type": "qwen3_5",
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
        "rope_parameters": {"type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    },
    "qwen3": {**_SHARED, "model_type": "qwen3", "rope_theta": 10000.0},
    "llama": {**_SHARED, "model_type": "llama", "rope_theta": 10000.0},
    "muse_glimmer": {
        **_SHARED,
        "model_type": "muse_glimmer",
        "sliding_window": 16,
        "final_logit_softcapping": 20.0,
        "output_multiplier": 0.196,
    },
}
DRAFTER_CONFIG: dict[str, object] = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-6,
    "num_target_layers": 8,
    "layer_types": ["sliding_attention", "sliding_attention"],
    "sliding_window": 16,
    "is_causal": False,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "dflash_config": {
        "block_size": 8,
        "target_layer_ids": list(TAPS),
        "mask_token_id": 500,
        "selector_rank": 8,
        "selector_top_k": 4,
        "conv_kernel_size": 2,
        "conv_group_size": 16,
    },
}


def tiny_model(model_type: str = "qwen3_5", seed: int = 0, bits: int | None = None) -> nn.Module:
    """A random float32 mlx-lm model with logits spread widely enough that greedy text is not one repeated token."""
    mx.random.seed(seed)
    model = random_model(TARGET_CONFIGS[model_type])
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
    mx.eval(model.parameters())
    return model


def random_model(config: Mapping[str, object]) -> nn.Module:
    """A random mlx-lm model of this config, not evaluated yet."""
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(dict(config))
    model = model_class(args_class.from_dict(dict(config)))
    model.update(tree_map(lambda p: p * 3 if p.ndim == 2 else p, model.parameters()))
    model.eval()
    return model


def tiny_target(model_type: str = "qwen3_5", seed: int = 0, taps: tuple[int, ...] = TAPS) -> LayeredTarget:
    """`tiny_model` as a target."""
    return build_target(tiny_model(model_type, seed), model_type, taps)


def tiny_drafter(target: LayeredTarget, seed: int = 1, **changes: object) -> DFlashDrafter:
    """A random drafter that fits `tiny_target`; its drafts are about never right."""
    config = drafter_config(**changes)
    mx.random.seed(seed)
    network = DraftNetwork(config)
    network.update(tree_map(lambda p: mx.random.normal(p.shape) * 0.2, network.parameters()))
    mx.eval(network.parameters())
    return DFlashDrafter(config, network, target.embed, target.head)


def drafter_config(**changes: object) -> DrafterConfig:
    """DRAFTER_CONFIG parsed, with top-level keys replaced."""
    return parse_drafter_config({**DRAFTER_CONFIG, **changes}, "drafter/config.json")


class ScriptedDrafter:
    """Proposes the truth for its first `right` slots (None = a random number a round) and wrong tokens after."""

    def __init__(self, truth: Sequence[int], right: int | None, *, block_size: int = 8, vocab: int = VOCAB) -> None:
        self.block_size, self.context_rows = block_size, 15
        self._truth, self._right, self._vocab = list(truth), right, vocab
        self._random = random.Random(0)
        self.reset()

    def reset(self) -> None:
        self.position = 0
        self.shown: list[mx.array] = []

    def observe(self, features: mx.array, end: int) -> None:
        assert end - features.shape[0] in (self.position, max(0, end - 15)), "features must be gapless"
        self.position = end
        self.shown.append(features)

    def propose(self, anchor: mx.array, count: int, draw: Draw | None = None) -> Draft:
        start = self.position + 1  # truth[i] is the token at position i
        right = self._random.randrange(count + 1) if self._right is None else self._right
        tokens = [self._truth[i] if i < len(self._truth) else 0 for i in range(start, start + count)]
        tokens = [t if slot < right else (t + 1) % self._vocab for slot, t in enumerate(tokens)]
        ids = mx.array(tokens, dtype=mx.int32)
        return Draft(ids, ids[:, None], mx.ones((count, 1)))


class ToyTarget:
    """A Markov target over a small vocabulary: the next token's logits are a row of `table` [V, V]."""

    def __init__(self, table: mx.array, context_limit: int = 10**6) -> None:
        self.vocab_size, self.context_limit = table.shape[0], context_limit
        self.quantized = False
        self._table = table
        self.reset()

    def reset(self) -> None:
        self.position = 0
        self._rows = 0

    def prefill(
        self, tokens: Sequence[int], *, chunk: int | None, keep: int | None
    ) -> Iterator[tuple[int, mx.array | None]]:
        if tokens:
            self.position += len(tokens)
            yield len(tokens), mx.zeros((len(tokens), 1))

    def rows_at_once(self, rows: int, depth: int) -> int:
        return rows

    def enter(self, tokens: Sequence[int], *, keep: int | None) -> Forward:
        self.position += len(tokens)
        return Forward(self._table[mx.array(tokens[-1:])], mx.zeros((len(tokens), 1)))

    def verify(self, block: mx.array) -> Forward:
        self._rows = block.shape[0]
        return Forward(self._table[block], mx.zeros((block.shape[0], 1)))

    def commit(self, rows: int) -> None:
        self.position += rows
        self._rows = 0


class ToyDrafter:
    """A Markov drafter over a small vocabulary: `size` candidates a slot, chosen by `table` [V, V] like the selector.

    Its tokens are really drawn from the probabilities that it reports, and those are not the target's.
    """

    def __init__(self, table: mx.array, size: int, *, block_size: int = 4, seed: int = 0) -> None:
        self.block_size, self.context_rows, self.position = block_size, None, 0
        shuffle = random.Random(seed)
        vocab = range(table.shape[0])
        self._candidates = [mx.array(shuffle.sample(vocab, size), dtype=mx.int32) for _ in range(block_size)]
        self._table = table

    def reset(self) -> None:
        self.position = 0

    def observe(self, features: mx.array, end: int) -> None:
        self.position = end

    def propose(self, anchor: mx.array, count: int, draw: Draw | None = None) -> Draft:
        tokens: list[mx.array] = [anchor.astype(mx.int32)]
        probabilities = []
        for slot, ids in enumerate(self._candidates[:count]):
            scores = mx.take_along_axis(self._table[tokens[-1]][0], ids, axis=0)
            if draw:
                scores = scores / draw.temperature
                probabilities.append(mx.softmax(scores))
            tokens.append(ids[self._choose(scores, draw.noise[slot][ids] if draw else None)][None])
        candidates = mx.stack(self._candidates[:count])
        return Draft(mx.concatenate(tokens[1:]), candidates, mx.stack(probabilities) if draw else None)

    def _choose(self, scores: mx.array, noise: mx.array | None) -> mx.array:
        return mx.argmax(scores if noise is None else scores + noise)


def answer(target, drafter, prompt, sampling=None, *, max_tokens=50, **engine) -> list[int]:
    """Tokens of a whole answer, drafted, or plain where `drafter` is None."""
    return [t for r in rounds_of(target, drafter, prompt, sampling, max_tokens=max_tokens, **engine) for t in r.tokens]


def rounds_of(target, drafter, prompt, sampling=None, *, max_tokens=50, **engine) -> list[Round]:
    """Rounds of a whole answer from an empty cache."""
    sampling, params = sampling or SamplingParams(), EngineParams(max_tokens=max_tokens, **engine)
    target.reset()
    if drafter is None:
        events = list(decode_plain(target, Task(prompt, sampling, params)))
    else:
        drafter.reset()
        events = list(decode(target, drafter, Task(prompt, sampling, params)))
    assert isinstance(events[-1], Ended)
    return [event for event in events if isinstance(event, Round)]


def parameter_names(module: nn.Module) -> list[str]:
    return [name for name, _ in tree_flatten(module.parameters())]
