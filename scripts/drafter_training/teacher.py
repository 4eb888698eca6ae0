"""The frozen target: features, its own next-token choices, embedding and head. Knows mlx-lm, nothing of training.

The target runs over several padded rows at once, without a cache; what follows a row's end cannot change the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError, UsageError
from dflash2_mlx.loading.load import load_pair
from dflash2_mlx.models.topk import largest
from dflash2_mlx.targets.base import LayeredTarget

CHOICES = 16  # likeliest next tokens that are kept of every position
LOGIT_BYTES = 2**30  # logits of one pass over the target stay below this
MASK_NAMES = ("<|mask|>", "<mask>", "[MASK]", "<|MASK|>", "<MASK>")
SPARE_WORDS = ("reserved", "unused", "extra_id", "placeholder", "fim_pad")


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the target knows of one piece of L tokens.

    features: [L, taps * H]. choices: its likeliest next tokens after every position [L, C], best first.
    odds: their probabilities [L, C] float32, not normalised over the C.
    """

    features: mx.array
    choices: mx.array
    odds: mx.array


class Teacher:
    """A target folder loaded for training a drafter on it."""

    def __init__(
        self, target: LayeredTarget, tokenizer: Any, end_tokens: frozenset[int], taps: tuple[int, ...] | None = None
    ) -> None:
        self.tokenizer, self.end_tokens = tokenizer, end_tokens
        self._language_model: Any = target.module
        self.args: Any = self._language_model.args
        layers = target.num_layers
        self.taps = taps or default_taps(layers)
        outside = [tap for tap in self.taps if not 0 <= tap < layers]
        if outside or list(self.taps) != sorted(set(self.taps)):
            raise UsageError(f"--taps {list(self.taps)}: give rising layer numbers of this target, 0 to {layers - 1}.")
        self.target: LayeredTarget = type(target)(self._language_model, self.taps)

    @property
    def dtype(self) -> mx.Dtype:
        """The type that the target computes in."""
        return self.target.embed(mx.array([0])).dtype

    def embed(self, ids: mx.array) -> mx.array:
        """Embedding rows in float32; ids of any shape."""
        return mx.stop_gradient(self.target.embed(ids)).astype(mx.float32)

    def head(self, hidden: mx.array) -> mx.array:
        """Logits [n, V] in float32 of hidden rows [n, H]; gradients flow back to `hidden` only."""
        return self.target.head(hidden.astype(self.dtype)).astype(mx.float32)

    def final_norm(self) -> mx.array | None:
        """The weight of the norm that this head is used to, if it has one."""
        weight = getattr(self._language_model.model.norm, "weight", None)
        return None if weight is None else weight.astype(mx.float32)

    def lessons(self, rows: Sequence[Sequence[int]]) -> list[Lesson]:
        """The lessons of several pieces, similar lengths best, in their order."""
        longest = max(len(row) for row in rows)
        at_once = max(1, LOGIT_BYTES // (4 * self.target.vocab_size * longest))
        out: list[Lesson] = []
        for first in range(0, len(rows), at_once):
            out += self._forward(rows[first : first + at_once])
        return out

    def _forward(self, rows: Sequence[Sequence[int]]) -> list[Lesson]:
        longest = max(len(row) for row in rows)
        ids = mx.array([[*row, *[0] * (longest - len(row))] for row in rows])
        features, logits = self._tapped(ids)
        logits = logits.astype(mx.float32)
        choices, values = largest(logits.reshape(-1, logits.shape[-1]), CHOICES)  # [B * L, C]
        order = mx.argsort(-values, axis=-1)
        choices, values = mx.take_along_axis(choices, order, axis=-1), mx.take_along_axis(values, order, axis=-1)
        odds = mx.exp(values - mx.logsumexp(logits, axis=-1).reshape(-1, 1))
        choices, odds = (part.reshape(len(rows), longest, -1) for part in (choices.astype(mx.int32), odds))
        parts = [(features[n, : len(row)], choices[n, : len(row)], odds[n, : len(row)]) for n, row in enumerate(rows)]
        copies = [Lesson(*(mx.contiguous(part) for part in three)) for three in parts]
        mx.eval([(lesson.features, lesson.choices, lesson.odds) for lesson in copies])
        return copies

    def _tapped(self, ids: mx.array) -> tuple[mx.array, mx.array]:
        """Features [B, L, taps * H] and logits [B, L, V] of ids [B, L]; layers are wrapped, no class is patched."""
        layers = self._language_model.model.layers
        plain = list(layers)
        listeners = {tap: _Listener(plain[tap]) for tap in self.taps}
        try:
            for tap, listener in listeners.items():
                layers[tap] = listener
            logits: mx.array = self._language_model(ids)
        finally:
            layers[:] = plain
        return mx.concatenate([listeners[tap].output for tap in self.taps], axis=-1), logits


class _Listener:
    """Stands in for a layer and remembers what came out of it."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.output: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.output = self._layer(*args, **kwargs)
        return self.output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def load_teacher(folder: Path, taps: tuple[int, ...] | None) -> Teacher:
    """The target of `folder`. Raises: LoadError, UsageError."""
    if not (folder / "config.json").is_file():
        raise LoadError(f"{folder} holds no config.json. Give the folder of a target in mlx-lm's format.")
    pair = load_pair(LoadParams(model=str(folder.resolve()), speculate=False))
    return Teacher(pair.target, pair.tokenizer, pair.end_tokens, taps)


def default_taps(layers: int) -> tuple[int, ...]:
    """Three to five layers, spread evenly from the second to the third from last."""
    first, last = min(1, layers - 1), max(min(1, layers - 1), layers - 3)
    count = min(5 if layers >= 24 else 3, last - first + 1)
    if count == 1:
        return (last,)
    return tuple(round(first + number * (last - first) / (count - 1)) for number in range(count))


def mask_token(teacher: Teacher, wanted: str | None) -> int:
    """The id of `wanted` (a number or a token's text), else a token named mask, else one that no text contains.

    Raises: UsageError where there is none.
    """
    vocabulary: dict[str, int] = teacher.tokenizer.get_vocab()
    size = teacher.target.vocab_size
    if wanted is not None:
        found = int(wanted) if wanted.isdigit() else vocabulary.get(wanted, -1)
        if not 0 <= found < size:
            raise UsageError(
                f"--mask-token {wanted}: no token of this target. Give an id below {size} or a token's text."
            )
        return found
    named = [vocabulary[name] for name in MASK_NAMES if name in vocabulary]
    spare = sorted(number for name, number in vocabulary.items() if any(word in name for word in SPARE_WORDS))
    unnamed = range(max(vocabulary.values(), default=-1) + 1, size)
    for number in (*named, *unnamed, *spare):
        # a row of zeros would give every mask row the same uniform attention
        if number < size and bool((teacher.embed(mx.array([number])) != 0).any().item()):
            return int(number)
    raise UsageError("no token is named mask and none is unused. Give --mask-token, a token that your text never has.")
