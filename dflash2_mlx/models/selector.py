"""One coherent path through the likeliest candidates of every drafted position. Knows mlx only.

Source: Inco AI, "DFlash 2: Keep Drafting Parallel": score(c | prev) = logit[c] + <pred[prev] * W h, succ[c]>.
"""

from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn

from dflash2_mlx.models.config import SelectorConfig
from dflash2_mlx.models.topk import largest


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft and the distribution that each of its tokens was drawn from.

    tokens: [n] int32. candidates: [n, K] int32. probabilities: [n, K] float32, None where drafting was greedy.
    """

    tokens: mx.array
    candidates: mx.array
    probabilities: mx.array | None


@dataclass(frozen=True, slots=True)
class Draw:
    """How to choose among scores: `argmax(scores / temperature + noise)`, noise a standard Gumbel over [n, V]."""

    temperature: float
    noise: mx.array


class CandidateSelector(nn.Module):
    """Codebooks that score how well a candidate follows its predecessor, given the position's hidden state."""

    def __init__(self, hidden_size: int, vocab_size: int, config: SelectorConfig) -> None:
        super().__init__()
        self.top_k = config.top_k  # candidates a position
        self.hidden_projection = nn.Linear(hidden_size, config.rank, bias=False)
        self.predecessor_codebook = mx.zeros((vocab_size, config.rank))
        self.successor_codebook = mx.zeros((vocab_size, config.rank))

    def transitions(self, anchor: mx.array, candidates: mx.array, hidden: mx.array) -> mx.array:
        """Pair scores [n, previous K, K] float32; row 0 has the anchor [1] as its only predecessor.

        candidates: [n, K]; hidden: [n, H].
        """
        gate = self.hidden_projection(hidden)
        return _pair_scores(anchor, candidates, gate, self.predecessor_codebook, self.successor_codebook)


@mx.compile
def _pair_scores(
    anchor: mx.array, candidates: mx.array, gate: mx.array, predecessors: mx.array, successors: mx.array
) -> mx.array:
    """See CandidateSelector.transitions; gate: [n, R], codebooks: [V, R]."""
    first = mx.broadcast_to(anchor[:, None], (1, candidates.shape[1]))
    previous = mx.concatenate([first, candidates[:-1].astype(anchor.dtype)])  # [n, K]
    left = predecessors[previous].astype(mx.float32) * gate[:, None].astype(mx.float32)  # [n, K, R]
    right = successors[candidates].astype(mx.float32)  # [n, K, R]
    return left @ right.swapaxes(1, 2)


def select(
    selector: CandidateSelector | None, anchor: mx.array, logits: mx.array, hidden: mx.array, draw: Draw | None
) -> Draft:
    """The path that starts at `anchor` [1] through the candidates of logits [n, V] and hidden [n, H].

    Without a draw every step takes the best score; without a selector (DFlash 1) positions are independent.
    """
    count = min(selector.top_k if selector else 16, logits.shape[-1])
    if selector is None and draw is None:
        tokens = mx.argmax(logits, axis=-1)
        return Draft(tokens, tokens[:, None], None)
    candidates, values = largest(logits, count)  # [n, K] each
    scores = values.astype(mx.float32)[:, None]  # [n, 1, K]
    if selector:
        scores = scores + selector.transitions(anchor, candidates, hidden)  # [n, previous K, K]
    if draw is None:
        path = _walk(mx.argmax(scores, axis=-1))
        return Draft(_pick(candidates, path), candidates, None)
    scores = scores / draw.temperature
    noise = mx.take_along_axis(draw.noise, candidates, axis=-1)[:, None]  # [n, 1, K]
    path = _walk(mx.argmax(scores + noise, axis=-1))
    before = mx.concatenate([mx.zeros((1,), path.dtype), path[:-1]]) % scores.shape[1]
    taken = mx.take_along_axis(scores, before[:, None, None], axis=1)[:, 0]  # [n, K]
    return Draft(_pick(candidates, path), candidates, mx.softmax(taken, axis=-1))


@mx.compile
def _walk(best: mx.array) -> mx.array:
    """Candidate places [n] of the path, where best [n, previous K] is the best place after each predecessor.

    Row i maps a place before position i to the best one there. Composing rows with those 1, 2, 4, ... before them
    takes log2(n) launches where walking takes n; row 0 is constant, so any column of the end is the path.
    """
    step = 1
    while step < best.shape[0] and best.shape[1] > 1:
        composed = mx.take_along_axis(best[step:], best[:-step], axis=1)
        best = mx.concatenate([best[:step], composed])
        step *= 2
    return best[:, 0]


def _pick(candidates: mx.array, path: mx.array) -> mx.array:
    return mx.take_along_axis(candidates, path[:, None], axis=1)[:, 0]
