"""The path through the candidates against a walk written out step by step."""

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.models.config import SelectorConfig
from dflash2_mlx.models.selector import CandidateSelector, Draw, select

V, H, R, K = 40, 12, 6, 5


@pytest.fixture
def selector() -> CandidateSelector:
    mx.random.seed(4)
    made = CandidateSelector(H, V, SelectorConfig(rank=R, top_k=K))
    made.predecessor_codebook, made.successor_codebook = mx.random.normal((2, V, R))
    made.hidden_projection.weight = mx.random.normal((R, H))
    return made


def rows(count: int) -> tuple[mx.array, mx.array]:
    """Logits [n, V] and hidden states [n, H]."""
    return mx.random.normal((count, V)), mx.random.normal((count, H))


def walk(selector: CandidateSelector, logits: np.ndarray, hidden: np.ndarray, draw: tuple[float, np.ndarray] | None):
    """(tokens, probabilities by token) from token 3 on, one step at a time."""
    before, after = np.array(selector.predecessor_codebook), np.array(selector.successor_codebook)
    gates = hidden @ np.array(selector.hidden_projection.weight).T
    previous, tokens, chances = 3, [], []
    for row, gate, step in zip(logits, gates, range(len(logits)), strict=True):
        candidates = np.argsort(-row)[:K]
        scores = row[candidates] + after[candidates] @ (before[previous] * gate)
        if draw:
            scores = scores / draw[0]
            chances.append(dict(zip(candidates.tolist(), np.exp(scores) / np.exp(scores).sum(), strict=True)))
            scores = scores + draw[1][step, candidates]
        previous = int(candidates[scores.argmax()])
        tokens.append(previous)
    return tokens, chances


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_greedy_path_takes_the_best_score_at_every_step(selector, count):
    logits, hidden = rows(count)
    draft = select(selector, mx.array([3]), logits, hidden, None)
    assert draft.tokens.tolist() == walk(selector, np.array(logits), np.array(hidden), None)[0]
    assert draft.probabilities is None


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_the_drawn_path_and_its_probabilities_follow_score_over_temperature(selector, temperature):
    (logits, hidden), noise = rows(7), mx.random.gumbel((7, V))
    draft = select(selector, mx.array([3]), logits, hidden, Draw(temperature, noise))
    tokens, chances = walk(selector, np.array(logits), np.array(hidden), (temperature, np.array(noise)))
    assert draft.tokens.tolist() == tokens
    for ids, values, wanted in zip(draft.candidates.tolist(), draft.probabilities.tolist(), chances, strict=True):
        assert dict(zip(ids, values, strict=True)) == pytest.approx(wanted, abs=1e-5)


def test_without_a_selector_positions_are_independent():
    logits, hidden = rows(7)
    draft = select(None, mx.array([3]), logits, hidden, None)
    assert draft.tokens.tolist() == np.array(logits).argmax(axis=-1).tolist()


def test_without_a_selector_a_draw_reports_the_softmax_of_its_candidates():
    logits, noise = mx.random.normal((3, V)), mx.random.gumbel((3, V))
    draft = select(None, mx.array([3]), logits, logits, Draw(0.7, noise))
    picked = mx.take_along_axis(logits, draft.candidates, axis=-1)
    assert mx.allclose(draft.probabilities, mx.softmax(picked / 0.7, axis=-1))
    best = mx.argmax(picked / 0.7 + mx.take_along_axis(noise, draft.candidates, axis=-1), axis=-1)
    assert draft.tokens.tolist() == mx.take_along_axis(draft.candidates, best[:, None], axis=-1)[:, 0].tolist()


def test_a_token_is_drawn_as_often_as_its_probability_says(selector):
    """2,000 draws of one slot; the deviation of each share stays below 5 standard errors for 99.999 % of seeds."""
    (logits, hidden), repeats = rows(1), 2000
    counts: dict[int, int] = {}
    for noise in mx.random.gumbel((repeats, 1, V)):
        draft = select(selector, mx.array([3]), logits, hidden, Draw(1.0, noise))
        counts[draft.tokens.item()] = counts.get(draft.tokens.item(), 0) + 1
    for token, chance in zip(draft.candidates[0].tolist(), draft.probabilities[0].tolist(), strict=True):
        error = (chance * (1 - chance) / repeats) ** 0.5
        assert abs(counts.get(token, 0) / repeats - chance) < 5 * error
