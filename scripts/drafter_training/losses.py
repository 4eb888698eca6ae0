"""What a drafter is trained for, and an estimate of how well it drafts. Knows the network and the teacher's head.

Rows learn the target's own next-token probabilities; the selector learns them over the candidates, given the true
token before. That token is what the path holds wherever the row is read at all: a draft is cut at its first miss.
"""

import mlx.core as mx
import numpy as np

from dflash2_mlx.models.config import DrafterConfig
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.models.topk import largest
from drafter_training.forward import BlockPass
from drafter_training.lessons import Task
from drafter_training.teacher import Teacher


class Objective:
    """The loss of a network on a task, between the teacher's embedding and head."""

    def __init__(self, config: DrafterConfig, teacher: Teacher) -> None:
        self._config, self._teacher, self._pass = config, teacher, BlockPass(config)

    def loss(self, network: DraftNetwork, task: Task) -> mx.array:
        """Cross entropy against the target's probabilities, of the rows' logits and of the selector's scores."""
        hidden, logits = self.rows(network, task)
        odds = task.odds / task.odds.sum(axis=-1, keepdims=True)
        missed = mx.logsumexp(logits, axis=-1) - (odds * mx.take_along_axis(logits, task.choices, axis=-1)).sum(axis=-1)
        if self._config.selector:
            candidates = self._candidates(mx.stop_gradient(logits), task.choices[:, :1])
            scores = pair_scores(network, hidden, logits, task.previous, candidates)
            same = candidates[:, :, None] == task.choices[:, None]  # [M, K, C]
            wanted = mx.where(same, task.odds[:, None], 0.0).sum(axis=-1)  # [M, K]
            wanted = wanted / wanted.sum(axis=-1, keepdims=True)
            missed = missed + mx.logsumexp(scores, axis=-1) - (wanted * scores).sum(axis=-1)
        return (missed * task.weights).sum()

    def rows(self, network: DraftNetwork, task: Task) -> tuple[mx.array, mx.array]:
        """Hidden states [M, H] and logits [M, V] of the task's answered rows."""
        anchor = self._teacher.embed(task.anchor_ids)[:, :, None]
        mask = self._teacher.embed(mx.array([self._config.mask_token_id]))
        shape = (*anchor.shape[:2], task.width - 1, anchor.shape[-1])
        blocks = mx.concatenate([anchor, mx.broadcast_to(mask, shape)], axis=2)
        hidden = self._pass.hidden(network, task.features, task.anchors, blocks)
        hidden = hidden.reshape(-1, hidden.shape[-1])[task.places]
        return hidden, self._teacher.head(hidden)

    def tokens_per_round(self, network: DraftNetwork, task: Task) -> float:
        """Estimate over the task's blocks: one, and as many rows from the left as say the target's likeliest token."""
        hidden, logits = self.rows(network, task)
        if self._config.selector:
            candidates = largest(logits, self._config.selector.top_k)[0]
            best = mx.argmax(pair_scores(network, hidden, logits, task.previous, candidates), axis=-1)
            said = mx.take_along_axis(candidates, best[:, None], axis=-1)[:, 0]
        else:
            said = mx.argmax(logits, axis=-1)
        right = np.zeros(task.anchors.size * task.width, dtype=bool)
        right[np.array(task.places)] = np.array(said.astype(mx.int32) == task.choices[:, 0])
        answered = np.zeros_like(right)
        answered[np.array(task.places)] = True
        kept = right.reshape(-1, task.width)[:, 1:].cumprod(axis=-1).sum(axis=-1)
        whole = answered.reshape(-1, task.width)[:, 1:].all(axis=-1)  # blocks at a piece's end would look short
        return 1.0 + float(kept[whole].mean()) if whole.any() else 1.0

    def _candidates(self, logits: mx.array, forced: mx.array) -> mx.array:
        """The likeliest tokens of every row [M, K], with `forced` [M, 1] in the least likely one's place if missing."""
        assert self._config.selector
        ids, values = largest(logits, self._config.selector.top_k)
        ids = ids.astype(mx.int32)
        present = (ids == forced).any(axis=-1, keepdims=True)
        last = mx.arange(ids.shape[1]) == mx.argmin(values, axis=-1, keepdims=True)
        return mx.where(last & ~present, forced, ids)


def pair_scores(
    network: DraftNetwork, hidden: mx.array, logits: mx.array, previous: mx.array, candidates: mx.array
) -> mx.array:
    """The selector's scores [M, K] of candidates [M, K] after the token `previous` [M]."""
    selector = network.candidate_selector
    left = selector.predecessor_codebook[previous] * selector.hidden_projection(hidden)  # [M, R]
    right = selector.successor_codebook[candidates]  # [M, K, R]
    scores: mx.array = mx.take_along_axis(logits, candidates, axis=-1) + (right @ left[..., None])[..., 0]
    return scores
