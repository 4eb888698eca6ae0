"""Which draft tokens are kept, decided on the device and read back in one transfer. Pure functions over mlx arrays."""

from dataclasses import dataclass
from typing import cast

import mlx.core as mx

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.engine.protocols import Draft
from dflash2_mlx.engine.randomness import uniform_rows
from dflash2_mlx.engine.sampling import Sampler, log_weights
from dflash2_mlx.events import TokenLogprob
from dflash2_mlx.models.topk import largest

# independent random numbers of one output position; 0 is the noise shared by target and drafter (coupled)
PROPOSE, ACCEPT, RESAMPLE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Decision:
    """One round's outcome on the host: `accepted` draft tokens, then the target's own, each perhaps with logprobs."""

    accepted: int
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One round's outcome on the device: tokens [b] (b - 1 kept or replaced draft tokens and a last one) and

    packed [1 + b * columns] float32: the accepted count, then per row token, logprob, top ids, top logprobs.
    Token ids are exact in float32 below 2^24.
    """

    tokens: mx.array
    packed: mx.array
    top: int | None

    def read(self) -> Decision:
        """The round's one blocking host transfer."""
        flat = cast(list[float], self.packed.tolist())
        accepted, values = int(flat[0]), flat[1:]
        columns = 1 if self.top is None else 2 + 2 * self.top
        rows = [values[i * columns : (i + 1) * columns] for i in range(accepted + 1)]
        tokens = tuple(int(row[0]) for row in rows)
        if self.top is None:
            return Decision(accepted, tokens, ())
        ids, logprobs = slice(2, 2 + self.top), slice(2 + self.top, None)
        tops = [tuple(zip((int(i) for i in row[ids]), row[logprobs], strict=True)) for row in rows]
        return Decision(
            accepted, tokens, tuple(TokenLogprob(int(r[0]), r[1], t) for r, t in zip(rows, tops, strict=True))
        )


def judge_same(logits: mx.array, draft: Draft | None, noise: mx.array | None, sampler: Sampler) -> Verdict:
    """Greedy and coupled acceptance: keep drafts while they equal the token that the target takes itself.

    The target's token of row j is `argmax(log p_j + noise_j)`, without noise its likeliest token.
    logits: [b, V]; noise: [b, V] or None.
    Source: Daliri, Musco, Suresh, "Coupling without Communication", arXiv:2408.07978.
    """
    scores = sampler.scores(logits, draft.tokens if draft else None)
    if noise is not None:
        scores = log_weights(scores, sampler.params) + noise
    tokens = mx.argmax(scores, axis=-1)
    equal = draft.tokens == tokens[:-1] if draft else None
    return _verdict(logits, tokens, equal, sampler.params)


def judge_rejection(logits: mx.array, draft: Draft, position: int, sampler: Sampler) -> Verdict:
    """Rejection sampling: keep d with probability min(1, p(d) / q(d)), else draw from max(p - q, 0), normalised.

    logits: [b, V]; `position` is the index of the first drafted output token.
    Source: Leviathan, Kalman, Matias, arXiv:2211.17192.
    """
    assert draft.probabilities is not None, "rejection needs the distribution that the draft was drawn from"
    count, (rows, vocab) = draft.tokens.shape[0], logits.shape
    target = mx.softmax(log_weights(sampler.scores(logits, draft.tokens), sampler.params), axis=-1)  # p [b, V]
    drafted = mx.put_along_axis(
        mx.zeros((count, vocab)), draft.candidates, draft.probabilities.astype(mx.float32), axis=-1
    )  # q [b - 1, V]
    places = draft.tokens[:, None]
    p = mx.take_along_axis(target[:-1], places, axis=-1)[:, 0]
    q = mx.take_along_axis(drafted, places, axis=-1)[:, 0]
    kept = uniform_rows(sampler.seed, position, count, ACCEPT) * q <= p
    kept = kept & (p > 0)
    residual = mx.concatenate([mx.maximum(target[:-1] - drafted, 0.0), target[-1:]])
    residual = mx.where(residual.sum(axis=-1, keepdims=True) > 0, residual, target)  # p == q: never needed but finite
    noise = sampler.noise(position, rows, RESAMPLE)
    assert noise is not None, "greedy decoding needs no rejection"
    redrawn = mx.argmax(mx.log(residual) + noise, axis=-1)  # [b]
    accepted = _leading(kept)
    proposed = mx.concatenate([draft.tokens.astype(redrawn.dtype), redrawn[-1:]])
    tokens = mx.where(mx.arange(rows) < accepted, proposed, redrawn)
    return _verdict(logits, tokens, kept, sampler.params)


def _leading(kept: mx.array) -> mx.array:
    """How many entries of kept [n] are true before the first false."""
    return mx.cumprod(kept.astype(mx.int32)).sum()


def _verdict(logits: mx.array, tokens: mx.array, kept: mx.array | None, params: SamplingParams) -> Verdict:
    accepted = mx.zeros((), dtype=mx.int32) if kept is None else _leading(kept)
    columns = [tokens[:, None].astype(mx.float32)]
    top = None if params.logprobs is None else min(params.logprobs, logits.shape[-1])
    if top is not None:
        columns += _logprob_columns(logits, tokens, top)
    rows = mx.concatenate(columns, axis=-1) if len(columns) > 1 else columns[0]
    packed = mx.concatenate([accepted.reshape(1).astype(mx.float32), rows.reshape(-1)])
    return Verdict(tokens, packed, top)


def _logprob_columns(logits: mx.array, tokens: mx.array, top: int) -> list[mx.array]:
    """Raw log-softmax of the row's token [b, 1] and, likeliest first, ids [b, top] and values [b, top]."""
    raw = logits.astype(mx.float32)
    raw = raw - mx.logsumexp(raw, axis=-1, keepdims=True)
    own = mx.take_along_axis(raw, tokens[:, None], axis=-1)
    if top == 0:
        return [own]
    ids, values = largest(raw, top)
    order = mx.argsort(-values, axis=-1)
    ids, values = mx.take_along_axis(ids, order, axis=-1), mx.take_along_axis(values, order, axis=-1)
    return [own, ids.astype(mx.float32), values]
