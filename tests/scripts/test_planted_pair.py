"""The planted pair: its plan, and a small one built and held against it."""

import importlib.util
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from dflash2_mlx.config import LoadParams
from dflash2_mlx.loading.load import load_pair

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    """scripts/planted_pair.py as a module."""
    spec = importlib.util.spec_from_file_location("planted_pair", ROOT / "scripts" / "planted_pair.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_pair"] = module
    spec.loader.exec_module(module)
    return module


def test_a_perfect_drafter_fills_every_block(script):
    assert script.Plan((5, 6, 7), frozenset()).accepted(5, 9, 4) == [3, 3]


def test_a_wrong_pair_ends_the_draft_there_and_the_next_round_starts_after_it(script):
    plan = script.Plan((5, 6, 7, 8), frozenset({7}))
    assert plan.proposed(7) == 5 and plan.proposed(6) == 7
    # from 5: 6 and 7 are right, then 7's successor is wrong; the target's own 8 is the next anchor
    assert plan.accepted(5, 8, 8) == [2, 3]


def test_the_last_round_drafts_no_more_than_there_is_room_for(script):
    assert script.Plan((5, 6), frozenset()).accepted(5, 4, 8) == [2]


@pytest.mark.parametrize(("right", "wrong"), [(1.0, 0), (0.8, 3), (0.5, 8), (0.0, 16)])
def test_so_many_pairs_are_wrong_as_asked_for(script, right, wrong):
    plan = script.planned(right)
    assert len(plan.cycle) == 16 and len(plan.wrong) == wrong and plan.wrong <= set(plan.cycle)


@pytest.mark.slow
@pytest.mark.parametrize("right", [0.7, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_small_pair_decodes_the_cycle_and_accepts_as_planted(script, tmp_path, monkeypatch, right):
    for name, value in {
        "HIDDEN": 128, "INTERMEDIATE": 192, "HEADS": 4, "HEAD_DIM": 32, "KEY_HEADS": 2, "VALUE_HEADS": 4,
        "STATE_DIM": 32, "RANK": 64,
    }.items():  # fmt: skip
        monkeypatch.setattr(script, name, value)
    sizes = {
        "hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    }  # fmt: skip
    monkeypatch.setattr(script, "TEXT_CONFIG", {**script.TEXT_CONFIG, **sizes})
    plan = script.build(tmp_path, right, 8)
    assert script.check(tmp_path, plan, 40, 8) == []
    assert len(plan.wrong) == (0 if right == 1.0 else 5)
    assert drafts(tmp_path, "misled", plan.cycle) == drafts(tmp_path, "dflash1", plan.cycle)


def drafts(folder, drafter, anchors):
    """What the drafter proposes after each anchor."""
    pair = load_pair(LoadParams(str(folder / "target"), str(folder / drafter)))
    _, features = next(iter(pair.target.prefill([5, 6, 7], chunk=8, keep=None)))
    found = []
    for anchor in anchors:
        pair.drafter.reset()
        pair.drafter.observe(features, 3)
        found.append(pair.drafter.propose(mx.array([anchor]), 7).tokens.tolist())
    return found


def test_a_pair_that_is_not_as_planted_is_found_out(script, tmp_path, monkeypatch):
    other = script.Plan((5, 6), frozenset({6}))
    monkeypatch.setattr(script, "rounds_of", lambda *_: [script.Round((5,), 0, 0), script.Round((9,), 1, 0)])
    monkeypatch.setattr(script, "load_pair", lambda _: type("P", (), {"tokenizer": script.load_tokenizer(script.DEMO)}))
    assert "greedy text is not the cycle" in script.check(tmp_path, other, 2, 2)[0]
