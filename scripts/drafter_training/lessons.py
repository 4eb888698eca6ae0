"""Which blocks a step drafts and what the rows should say. Knows pieces and lessons, nothing of the network."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from drafter_training.data import Piece
from drafter_training.teacher import Lesson

DECAY = 4.0  # rows count exp(-(row - 1) / DECAY): an early miss costs all rows after it


@dataclass(frozen=True, slots=True)
class Task:
    """Blocks of `width` rows after A anchors in each of B pieces, and the M rows of them that have an answer.

    features: [B, L, taps * H]; anchors, anchor_ids: [B, A]. Of each answered row: `places` in B * A * width, its
    `slots` in the block, the true `previous` token, the target's `choices` [M, C] best first and their `odds` [M, C].
    """

    features: mx.array
    anchors: mx.array
    anchor_ids: mx.array
    width: int
    places: mx.array
    slots: mx.array
    previous: mx.array
    choices: mx.array
    odds: mx.array

    @property
    def weights(self) -> mx.array:
        """How much each answered row counts [M]; sums to one."""
        weights = mx.exp((1.0 - self.slots.astype(mx.float32)) / DECAY)
        return weights / weights.sum()


def make_task(
    pieces: Sequence[Piece], lessons: Sequence[Lesson], *, anchors: int, width: int, chance: random.Random
) -> Task:
    """Blocks after at most `anchors` random positions of every piece."""
    count = min(anchors, max(len(piece.anchors) for piece in pieces))
    chosen = np.ones((len(pieces), count), dtype=np.int32)
    used = np.zeros((len(pieces), count), dtype=bool)
    for row, piece in enumerate(pieces):
        drawn = chance.sample(piece.anchors, min(count, len(piece.anchors)))
        chosen[row, : len(drawn)], used[row, : len(drawn)] = drawn, True
    lengths = np.array([len(piece.ids) for piece in pieces])
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    ids = np.concatenate([np.array(piece.ids, dtype=np.int32) for piece in pieces])
    answered = chosen[..., None] + np.arange(width)  # the position whose token each row should say [B, A, W]
    right = used[..., None] & (np.arange(width) > 0) & (answered < lengths[:, None, None])
    before = (answered - 1 + begins[:, None, None])[right]  # places of the tokens before them, in the joined pieces
    padded = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1) + begins[:, None]  # [B, L]
    at = mx.array(before)
    return Task(
        features=mx.concatenate([lesson.features for lesson in lessons])[mx.array(padded)].astype(mx.float32),
        anchors=mx.array(chosen),
        anchor_ids=mx.array(ids[chosen + begins[:, None]]),
        width=width,
        places=mx.array(np.flatnonzero(right)),
        slots=mx.array(np.nonzero(right)[2]),
        previous=mx.array(ids[before]),
        choices=mx.concatenate([lesson.choices for lesson in lessons])[at],
        odds=mx.concatenate([lesson.odds for lesson in lessons])[at],
    )
