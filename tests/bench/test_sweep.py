"""The cost model of block sizes."""

from dataclasses import replace

import pytest

from dflash2_mlx.bench.numbers import spread
from dflash2_mlx.bench.sweep import BlockFigures, Cost, SweepDocument, as_good_of, best_of, cost_of, plain_step, reasons
from dflash2_mlx.bench.timing import Parts
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Round


def parts(passes, drafts, rest, rounds=3):
    done = tuple(Round((1,), 0, 0) for _ in range(rounds))
    return Parts(sum(drafts), sum(s for _, s in passes), rest, 0.0, tuple(passes), tuple(drafts), (), done)


def width(rows, measured, tokens=2.0, cost=1.5):
    return BlockFigures(rows, Cost(rows, cost - 0.2, 0.2), tokens, 10, 0, tokens / cost, spread([measured] * 3))


def test_a_round_costs_its_parts_in_plain_steps():
    plain = parts([(1, 0.09), (1, 0.11)], [], 0.04)
    assert plain_step(plain) == pytest.approx(0.1)
    cost = cost_of(4, [parts([(4, 0.15), (4, 0.17), (2, 0.01)], [0.03, 0.05], 0.02)], [plain])
    assert (cost.verify, cost.draft) == pytest.approx((1.6, 0.4))
    assert cost.round == pytest.approx(2.0)


def test_a_machine_that_slows_down_in_mid_sweep_does_not_change_what_a_round_costs():
    fast, plain = parts([(4, 0.16)], [0.04], 0.02), parts([(1, 0.1), (1, 0.1)], [], 0.04)
    slow = parts([(4, 0.48)], [0.12], 0.06), parts([(1, 0.3), (1, 0.3)], [], 0.12)
    cost = cost_of(4, [fast, fast, slow[0]], [plain, slow[1], slow[1]])
    assert (cost.verify, cost.draft) == pytest.approx((1.6, 0.4))


@pytest.mark.parametrize(
    ("drafted", "plain"),
    [
        (parts([(3, 0.1)], [0.04], 0.0), parts([(1, 0.1)], [], 0.0)),
        (parts([(4, 0.1)], [0.04], 0.0), parts([], [], 0.0)),
    ],
)
def test_answers_too_short_to_time_are_refused(drafted, plain):
    with pytest.raises(UsageError, match="long enough to time a block of 4 rows"):
        cost_of(4, [drafted], [plain])


def test_the_prediction_counts_the_steps_that_nothing_was_drafted_for():
    cost = Cost(8, 1.4, 0.2)
    assert cost.speedup(62, 12, 0) == pytest.approx((62 / 12) / 1.6)  # tokens per round / cost of a round
    assert cost.speedup(63, 12, 1) == pytest.approx(63 / (12 * 1.6 + 1))


def test_the_narrower_block_wins_a_tie():
    assert best_of([width(2, 1.4), width(3, 1.99), width(4, 2.0)]) == 3


def test_plain_decoding_is_best_where_no_block_beats_it():
    assert best_of([width(2, 0.9), width(4, 0.8)]) == 1
    assert best_of([replace(width(2, 1.0), measured=spread([0.8, 1.1, 1.2, 1.0, 1.3]))]) == 1, "within noise"


def document(*widths):
    return SweepDocument("", 1, None, (), 3, 0.1, widths, best_of(widths), as_good_of(widths), True)


def test_block_sizes_that_noise_does_not_tell_apart_are_named_together():
    def noisy(rows, *samples):
        return replace(width(rows, 1.0), measured=spread(samples))

    widths = (noisy(5, 1.4, 1.5, 1.4), noisy(6, 1.8, 1.9, 1.7), noisy(7, 1.7, 2.0, 1.9), noisy(8, 1.9, 1.8, 1.8))
    assert as_good_of(widths) == (6, 7, 8)
    assert reasons(document(*widths))[0].startswith("Best block size: 6 to 8, within noise; 7 rows: 1.90x plain")
    assert as_good_of((noisy(2, 1.0, 1.0), noisy(3, 1.5, 1.5), noisy(8, 1.5, 1.5))) == (3, 8)
    assert reasons(document(noisy(3, 1.5), noisy(5, 1.0), noisy(8, 1.5)))[0].startswith("Best block size: 3, 8, within")


def test_the_reason_names_what_a_row_more_brings_and_costs():
    lines = reasons(document(width(2, 1.4, 1.8, 1.3), width(3, 1.6, 2.4, 1.5), width(4, 1.5, 2.5, 1.7)))
    assert lines[0].startswith("Best block size: 3, 1.60x plain decoding: 2.40 tokens per round for 1.50 plain steps")
    assert "One row fewer commits -0.60 tokens a round and costs -0.20 plain steps: 1.40x." in lines
    assert "One row more commits +0.10 tokens a round and costs +0.20 plain steps: 1.50x." in lines


def test_a_sweep_that_gains_nothing_says_so_and_what_to_do():
    (line,) = reasons(document(width(2, 0.9, 1.2, 1.4)))
    assert line.startswith(
        "No block size beats plain decoding here. The nearest is 2 with 0.90x: 1.20 tokens per round"
    )
    assert "--no-draft" in line
