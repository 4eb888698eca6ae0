"""Targets with sliding windows: the same text as mlx-lm's rotating caches, also when cut back after they wrapped."""

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from dflash2_mlx.targets.sliding import WindowCache
from fakes import ScriptedDrafter, answer, tiny_target

WINDOW, LENGTH = 16, 40
PROMPTS = (1, WINDOW - 2, WINDOW - 1, WINDOW, WINDOW + 1, WINDOW + 2, 2 * WINDOW)


@pytest.fixture(scope="module")
def target():
    return tiny_target("muse_glimmer")


@pytest.fixture(scope="module")
def texts(target):
    """mlx-lm's own greedy text by prompt length."""
    out = {}
    for count in PROMPTS:
        steps = generate_step(mx.array(prompt(count)), target.module, max_tokens=LENGTH)
        out[count] = [int(token) for token, _ in steps][:LENGTH]
    return out


def prompt(count: int) -> list[int]:
    return [(7 * i + 3) % 500 for i in range(count)]


class MixedDrafter(ScriptedDrafter):
    """Drafts fewer tokens than asked for, another number each round: widths 5, 1 and a half, 3 ... of the block."""

    def propose(self, anchor, count, draw=None):
        self.turn = getattr(self, "turn", 0) + 1
        return super().propose(anchor, max(1, count >> self.turn % 3), draw)


@pytest.mark.slow
@pytest.mark.parametrize("count", PROMPTS)
def test_plain_decoding_is_mlx_lms(target, texts, count):
    assert answer(target, None, prompt(count), max_tokens=LENGTH) == texts[count]


@pytest.mark.parametrize("block", [5, 16, *(pytest.param(block, marks=pytest.mark.slow) for block in (2, 8))])
@pytest.mark.parametrize("right", [15, *(pytest.param(right, marks=pytest.mark.slow) for right in (None, 0, 3))])
def test_drafted_text_is_mlx_lms_around_the_window(target, texts, block, right):
    for count in PROMPTS[:: 1 if block == 5 else 3]:
        drafter = ScriptedDrafter(prompt(count) + texts[count], right, block_size=16)
        assert answer(target, drafter, prompt(count), max_tokens=LENGTH, block_size=block) == texts[count]


@pytest.mark.slow
@pytest.mark.parametrize("right", [2, *(pytest.param(right, marks=pytest.mark.slow) for right in (0, 15))])
def test_widths_that_change_from_round_to_round_change_no_token(target, texts, right):
    for count in PROMPTS:
        drafter = MixedDrafter(prompt(count) + texts[count], right, block_size=16)
        assert answer(target, drafter, prompt(count), max_tokens=LENGTH, block_size=9) == texts[count]


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2, 17))
def test_every_block_size_gives_mlx_lms_text(target, texts, block):
    for count in PROMPTS:
        for right in (0, block // 2, 15):
            drafter = ScriptedDrafter(prompt(count) + texts[count], right, block_size=16)
            assert answer(target, drafter, prompt(count), max_tokens=LENGTH, block_size=block) == texts[count]


def test_the_window_cache_gives_the_last_rows_in_order_whatever_was_cut_back():
    cache, kept = WindowCache(8), []
    for step, (count, cut) in enumerate([(5, 0), (3, 2), (8, 7), (1, 0), (4, 4), (300, 0), (5, 3), (1, 1), (2, 0)]):
        rows = [1000 * step + i for i in range(count)]
        keys = mx.array(rows, dtype=mx.float32).reshape(1, 1, count, 1)
        seen, _ = cache.update_and_fetch(keys, keys)
        assert seen.reshape(-1).tolist() == (kept[-7:] if kept else []) + rows
        cache.trim(cut)
        kept += rows[: count - cut]
        assert cache.offset == len(kept)
