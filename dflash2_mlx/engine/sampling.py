"""The target's distribution of a row, and the noise that picks from it. Knows mlx, nothing of targets or drafters.

Order, in float32: logit_bias; repetition, presence and frequency penalties; temperature; top_k; top_p over what
top_k left; min_p relative to the largest. Source: transformers' warpers, for which model cards give their settings.
"""

import secrets
from collections.abc import Sequence

import mlx.core as mx

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.engine.randomness import gumbel_rows
from dflash2_mlx.errors import UsageError
from dflash2_mlx.models.topk import largest


class Sampler:
    """Scores rows of target logits for one answer and remembers the tokens that penalties count.

    Raises: UsageError for a logit_bias token outside the vocabulary.
    """

    def __init__(self, params: SamplingParams, vocab_size: int, prompt: Sequence[int]) -> None:
        self.params = params
        self.seed = secrets.randbits(63) if params.seed is None else params.seed
        self._vocab_size = vocab_size
        self._bias = _dense_bias(params, vocab_size)
        if params.penalised:
            ids = mx.array(list(prompt), dtype=mx.int32)
            self._seen = mx.zeros((vocab_size,), dtype=mx.bool_)
            self._seen[ids] = True  # [V] in prompt or output
            self._counts = mx.zeros((vocab_size,), dtype=mx.float32)  # [V] occurrences in the output

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.params.temperature == 0.0

    def noise(self, position: int, rows: int, purpose: int = 0) -> mx.array | None:
        """Gumbel noise [rows, V] for the output tokens `position` onwards; None when greedy."""
        return None if self.greedy else gumbel_rows(self.seed, position, rows, self._vocab_size, purpose)

    def scores(self, logits: mx.array, draft: mx.array | None) -> mx.array:
        """Logits [b, V] after bias and penalties, float32; row j counts the history and draft tokens 0 to j - 1."""
        scores = logits.astype(mx.float32)
        if self._bias is not None:
            scores = scores + self._bias
        if not self.params.penalised:
            return scores
        counts = mx.zeros((1, self._vocab_size), dtype=mx.float32)
        if draft is not None:
            drafted = (draft[:, None] == mx.arange(self._vocab_size)).astype(mx.float32)  # [b - 1, V]
            counts = mx.concatenate([counts, mx.cumsum(drafted, axis=0)])  # [b, V]
        return penalise(scores, self._seen | (counts > 0), self._counts + counts, self.params)

    def record(self, tokens: mx.array) -> None:
        """Add committed tokens [n] to the history."""
        if self.params.penalised:
            self._seen[tokens] = True
            self._counts = self._counts.at[tokens].add(1.0)


def penalise(scores: mx.array, seen: mx.array, counts: mx.array, params: SamplingParams) -> mx.array:
    """Scores [b, V] after penalties, for tokens seen [b, V] in prompt or output and counts [b, V] in the output.

    Source: Keskar et al., arXiv:1909.05858 (repetition); the OpenAI API reference (presence, frequency).
    """
    if params.repetition_penalty != 1.0:
        strength = params.repetition_penalty
        scores = mx.where(seen, mx.where(scores > 0, scores / strength, scores * strength), scores)
    if params.presence_penalty != 0.0:
        scores = scores - params.presence_penalty * (counts > 0)
    if params.frequency_penalty != 0.0:
        scores = scores - params.frequency_penalty * counts
    return scores


def log_weights(scores: mx.array, params: SamplingParams) -> mx.array:
    """Unnormalised log probabilities [b, V] after temperature and filters; -inf where a token is filtered out."""
    scores = scores / params.temperature
    kept = mx.ones(scores.shape, dtype=mx.bool_)
    top_k = params.top_k if 0 < params.top_k < scores.shape[-1] else 0
    if top_k or params.top_p < 1.0:
        leading = -mx.sort(-(largest(scores, top_k)[1] if top_k else scores), axis=-1)  # [b, K] falling
        counts = mx.full((scores.shape[0], 1), leading.shape[-1], dtype=mx.int32)
        if params.top_p < 1.0:
            weights = mx.softmax(leading, axis=-1)
            before = mx.cumsum(weights, axis=-1) - weights
            counts = mx.maximum((before < params.top_p).sum(axis=-1, keepdims=True), 1)
        kept = keep_largest(scores, mx.take_along_axis(leading, counts - 1, axis=-1), counts)
    if params.min_p > 0.0:
        kept = kept & (scores >= scores.max(axis=-1, keepdims=True) + mx.log(mx.array(params.min_p)))
    return mx.where(kept, scores, -mx.inf)


def keep_largest(scores: mx.array, threshold: mx.array, counts: mx.array) -> mx.array:
    """Marks exactly counts [b, 1] entries of scores [b, V]: those above threshold [b, 1], then ties by lower id."""
    above = scores > threshold
    ties = scores == threshold
    room = counts - above.sum(axis=-1, keepdims=True)
    return above | (ties & (mx.cumsum(ties.astype(mx.int32), axis=-1) <= room))


def _dense_bias(params: SamplingParams, vocab_size: int) -> mx.array | None:
    if not params.logit_bias:
        return None
    outside = [token for token in params.logit_bias if token >= vocab_size]
    if outside:
        raise UsageError(f"logit_bias names token {outside[0]}, outside the vocabulary of {vocab_size} tokens.")
    bias = mx.zeros((vocab_size,), dtype=mx.float32)
    bias[mx.array(list(params.logit_bias))] = mx.array(list(params.logit_bias.values()))
    return bias
