"""What the engine computes, written again in NumPy, and the chi-square test. Knows SamplingParams, no MLX."""

import math

import numpy as np

from dflash2_mlx.config import SamplingParams

LEAST_EXPECTED = 5.0  # rarer cells are pooled, as the chi-square approximation asks


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis in float64."""
    logits = np.asarray(logits, dtype=np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def kept_tokens(row: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Which tokens survive top_k, then top_p over those, then min_p, for scores already divided by temperature."""
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))
    if 0 < params.top_k < len(row):
        order = order[: params.top_k]
    probabilities = np.exp(log_softmax(row[order]))
    if params.top_p < 1.0:
        before = np.cumsum(probabilities) - probabilities
        order = order[: max(1, int((before < params.top_p).sum()))]
    floor = row.max() + math.log(params.min_p) if params.min_p else -math.inf
    kept = np.zeros(len(row), dtype=bool)
    kept[[token for token in order if row[token] >= floor]] = True
    return kept


def probabilities(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The target's distribution [V] of one row of logits without penalties."""
    row = np.asarray(logits, dtype=np.float64) / params.temperature
    weights = np.where(kept_tokens(row, params), np.exp(row - row.max()), 0.0)
    return weights / weights.sum()


def penalised(logits: np.ndarray, prompt: list[int], output: list[int], params: SamplingParams) -> np.ndarray:
    """One row of logits after bias and penalties, token by token."""
    row = np.array(logits, dtype=np.float64)
    for token, bias in params.logit_bias.items():
        row[token] += bias
    for token in set(prompt) | set(output):
        row[token] = (
            row[token] / params.repetition_penalty if row[token] > 0 else row[token] * params.repetition_penalty
        )
    for token in set(output):
        row[token] -= params.presence_penalty + params.frequency_penalty * output.count(token)
    return row


def transition_p_value(tokens: list[int], matrix: np.ndarray) -> float:
    """Chance of counts of successive pairs at least as far from the Markov chain `matrix` [V, V] as these.

    Zero where a token was emitted that has no probability.
    """
    counts = np.zeros(matrix.shape)
    np.add.at(counts, (tokens[:-1], tokens[1:]), 1)
    if counts[matrix == 0].any():
        return 0.0
    statistic, freedom = 0.0, 0
    for seen, row in zip(counts, matrix, strict=True):
        part, cells = _chi_square(seen, row * seen.sum())
        statistic, freedom = statistic + part, freedom + cells - 1
    return upper_tail(statistic, freedom)


def frequency_p_value(counts: np.ndarray, chances: np.ndarray) -> float:
    """Chance of counts at least as far from independent draws with these chances."""
    counts, chances = np.ravel(counts), np.ravel(chances)
    if counts[chances == 0].any():
        return 0.0
    statistic, cells = _chi_square(counts, chances * counts.sum())
    return upper_tail(statistic, cells - 1)


def _chi_square(seen: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """(statistic, cells) with all rare cells pooled into one, and that into the smallest other if still rare."""
    order = np.argsort(-expected)
    seen, expected = seen[order], expected[order]
    common = max(1, int((expected >= LEAST_EXPECTED).sum()))
    if expected[common:].sum() < LEAST_EXPECTED:
        common = max(1, common - 1)
    groups = [(seen[i], expected[i]) for i in range(common)]
    groups.append((seen[common:].sum(), expected[common:].sum()))
    groups = [(s, e) for s, e in groups if e > 0]
    return sum((s - e) ** 2 / e for s, e in groups), max(1, len(groups))


def upper_tail(statistic: float, freedom: int) -> float:
    """P(chi-square with `freedom` degrees >= statistic): the regularised upper incomplete gamma function.

    Source: DLMF 8.11.4 (series) and 8.9.2 (continued fraction, by Lentz's method).
    """
    a, x = freedom / 2, statistic / 2
    if freedom == 0 or x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, 10_000):
            term *= x / (a + n)
            total += term
        return max(0.0, 1 - total * scale)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for n in range(1, 10_000):
        step = -n * (n - a)
        b += 2
        d = 1 / (step * d + b)
        c = b + step / c
        fraction *= c * d
    return fraction * scale
