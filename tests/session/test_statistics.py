"""What a summary claims about drafting."""

import pytest

from dflash2_mlx.events import Round, Setting
from dflash2_mlx.session.statistics import Stats


@pytest.mark.parametrize(
    ("plain_rate", "drafted_rate", "said"),
    [(20.0, 15.0, True), (15.0, 20.0, False), (20.0, None, False), (None, 15.0, False), (None, None, False)],
)
def test_drafting_is_said_not_to_pay_only_where_plain_steps_were_measured_to_be_faster(plain_rate, drafted_rate, said):
    stats = Stats(prompt_tokens=3)
    for done in [Round((1,), 0, 0)] * 20 + [Round((1, 2), 4, 1)] * 10:
        stats.add(done)
    setting = Setting("drafted", 5, "", None, "greedy", None, plain_rate=plain_rate, drafted_rate=drafted_rate)
    summary = stats.summary(setting, 0)
    assert summary.mostly_plain == said and (summary.plain_steps, summary.rounds) == (19, 10)
    assert (summary.plain_rate, summary.drafted_rate) == (plain_rate, drafted_rate)
