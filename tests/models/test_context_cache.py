"""What a draft layer sees after any commits, against sets of positions and attention written out in NumPy."""

import random

import mlx.core as mx
import numpy as np
import pytest

from dflash2_mlx.models.cache import ContextCache, block_mask
from dflash2_mlx.models.layers import DraftAttention
from fakes import drafter_config, tiny_drafter, tiny_target

FULL = ["full_attention", "full_attention"]
AFTER_WRAP = [20, 1, 1, 3, 1, 8, 1]  # single rows after the window has wrapped
EDGES = [15, 1, 16, 17, 2, 40, 1]


def commits(seed: int) -> list[int]:
    """Random numbers of context rows committed before each block: mostly a few, sometimes none or a long prompt."""
    dice = random.Random(seed)
    return [dice.choice([0, 1, 1, 2, 3, 5, 8, 16, 17, dice.randrange(300)]) for _ in range(40)]


def rows_at(positions: range) -> mx.array:
    """Keys [1, 1, n, 1] that hold their own position."""
    return mx.array(list(positions), dtype=mx.float32).reshape(1, 1, -1, 1)


def seen_positions(
    cache: ContextCache, anchor: int, new: int, block: int, rule: tuple[int | None, bool]
) -> list[set[int]]:
    """The positions that each of `block` queries sees once `new` context rows before `anchor` are stored."""
    window, causal = rule
    rows = rows_at(range(anchor - new, anchor + block))
    keys, values = cache.update(rows, rows, new)
    assert mx.array_equal(keys, values)
    positions = np.array(keys).ravel()
    mask = block_mask(len(positions) - block, block, window=window, causal=causal)
    seen = np.ones((block, len(positions)), dtype=bool)
    if mask is not None:
        seen = np.tril(seen, len(positions) - block) if isinstance(mask, str) else np.array(mask)
    return [set(positions[row].astype(int).tolist()) for row in seen]


def expected_positions(anchor: int, block: int, rule: tuple[int | None, bool]) -> list[set[int]]:
    window, causal = rule
    return [
        {p for p in range(anchor) if window is None or anchor + row - p < window}
        | set(range(anchor, anchor + (row + 1 if causal else block)))
        for row in range(block)
    ]


def check_positions(pattern: list[int], rule: tuple[int | None, bool], block: int) -> None:
    cache, anchor = ContextCache(rule[0]), 0
    for new in pattern:
        anchor += new
        visible = new if rule[0] is None else min(new, rule[0] - 1)
        assert seen_positions(cache, anchor, visible, block, rule) == expected_positions(anchor, block, rule)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [16, 8, None])
@pytest.mark.parametrize("pattern", [AFTER_WRAP, EDGES, [300, 1], commits(0)], ids=str)
def test_every_query_sees_exactly_the_positions_of_its_window(pattern, window, causal):
    check_positions(pattern, (window, causal), block=8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_every_query_sees_its_window_after_any_commits(seed):
    dice = random.Random(seed)
    block = dice.randrange(1, 9)
    window = dice.choice([None, block, block + 1, 16, 64])
    check_positions(commits(seed), (window, dice.random() < 0.5), block)


def test_a_windowed_buffer_stops_growing():
    cache, sizes = ContextCache(16), set()
    for _ in range(2000):
        cache.update(rows_at(range(9)), rows_at(range(9)), 1)
        sizes.add(cache.nbytes)
    assert max(sizes) <= 2 * 4 * (2 * 15 + 9 + 256)
    assert len(sizes) <= 2


def test_clearing_forgets_all_rows_and_bytes():
    cache = ContextCache(16)
    cache.update(rows_at(range(5)), rows_at(range(5)), 5)
    cache.clear()
    assert (cache.rows, cache.nbytes) == (0, 0)


def rotated(rows: np.ndarray, positions: np.ndarray, theta: float) -> np.ndarray:
    """Rotary positions on [n, heads, D], the two halves of a head being a pair's parts."""
    half = rows.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    left, right = rows[..., :half], rows[..., half:]
    return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def naive_attention(layer: DraftAttention, rows: np.ndarray, block: int, rule: tuple[int | None, bool]) -> np.ndarray:
    """Output [block, H] for all rows [anchor + block, H] since position 0, with one softmax a query and head."""
    weight = {name: np.array(getattr(layer, f"{name}_proj").weight, dtype=np.float64) for name in "qkvo"}
    anchor, positions, dim = len(rows) - block, np.arange(len(rows)), 16

    def heads(name: str, scale: mx.array | None) -> np.ndarray:
        split = (rows @ weight[name].T).reshape(len(rows), -1, dim)
        if scale is None:
            return split
        normed = split / np.sqrt((split**2).mean(axis=-1, keepdims=True) + 1e-6) * np.array(scale)
        return rotated(normed, positions, 1e4)

    q, k, v = heads("q", layer.q_norm.weight), heads("k", layer.k_norm.weight), heads("v", None)
    out = np.zeros((block, q.shape[1], dim))
    for row, seen in enumerate(expected_positions(anchor, block, rule)):
        keys = sorted(seen)
        for head in range(q.shape[1]):
            scores = k[keys, head // 2] @ q[anchor + row, head] / dim**0.5
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ v[keys, head // 2] / weights.sum()
    return out.reshape(block, -1) @ weight["o"].T


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("types", [["sliding_attention"] * 2, FULL], ids=["sliding", "full"])
def test_attention_equals_a_naive_windowed_softmax_over_the_whole_history(types, causal):
    config = drafter_config(layer_types=types, is_causal=causal)
    mx.random.seed(3)
    layer, cache, block = DraftAttention(config, 0), ContextCache(config.windows[0]), 5
    history = np.zeros((0, 64))
    for new in [*AFTER_WRAP, 6, 0, 2]:
        context, drafted = mx.random.normal((new, 64)), mx.random.normal((block, 64))
        history = np.concatenate([history, np.array(context)])
        visible = context if config.windows[0] is None else context[-15:]
        out = layer(drafted, visible, len(history), cache)
        rows = np.concatenate([history, np.array(drafted)])
        assert np.abs(np.array(out) - naive_attention(layer, rows, block, (config.windows[0], causal))).max() < 1e-5


@pytest.mark.parametrize("types", [["sliding_attention"] * 2, FULL, [*FULL[:1], "sliding_attention"]], ids=str)
@pytest.mark.parametrize("pattern", [[1] * 300, [200, 56, 1], [257], [14, 1, 1] * 100], ids=lambda p: f"{len(p)} parts")
def test_features_shown_in_any_parts_give_the_same_draft(types, pattern):
    target = tiny_target("qwen3")
    parts, whole = (tiny_drafter(target, layer_types=types) for _ in range(2))
    features, shown = mx.random.normal((sum(pattern), 192)), 0
    for rows in pattern:
        parts.observe(features[shown : shown + rows], shown + rows)
        shown += rows
    whole.observe(features, shown)
    anchor = mx.array([7])
    assert mx.abs(parts.hidden(anchor, 7) - whole.hidden(anchor, 7)).max().item() < 1e-4


def test_a_gap_is_allowed_only_where_no_layer_could_see_into_it():
    drafter = tiny_drafter(tiny_target("qwen3"))
    drafter.observe(mx.random.normal((15, 192)), 100)
    with pytest.raises(AssertionError, match="shown so far: 100"):
        drafter.observe(mx.random.normal((14, 192)), 200)


def test_drafting_again_without_new_features_gives_the_same_draft():
    drafter = tiny_drafter(tiny_target("qwen3"))
    drafter.observe(mx.random.normal((20, 192)), 20)
    first = drafter.propose(mx.array([3]), 7).tokens
    drafter.propose(mx.array([9]), 4)
    assert mx.array_equal(drafter.propose(mx.array([3]), 7).tokens, first)


@pytest.mark.parametrize(("context", "mask"), [(0, "causal"), (2043, "causal"), (2044, mx.array)])
def test_while_a_window_reaches_everything_a_causal_block_needs_no_mask_of_its_own(context, mask):
    found = block_mask(context, 5, window=2048, causal=True)
    assert found == mask if isinstance(mask, str) else isinstance(found, mask)
