"""Groups answered by every method in turn, with scripted sessions."""

from dataclasses import replace

import pytest
from bench_fakes import FakeSession, drafted_rounds, fake_method, plain_rounds

from dflash2_mlx.bench.compare import KIND, VERSION
from dflash2_mlx.bench.environment import describe
from dflash2_mlx.bench.page import page
from dflash2_mlx.bench.run import NEVER_ENDS, RunPlan, groups_of, run_group
from dflash2_mlx.bench.run_report import RunDocument, RunSettings, run_report, verdict
from dflash2_mlx.bench.workloads import Workload
from dflash2_mlx.config import SamplingParams

GREEDY = SamplingParams()
CHAT = Workload("chat", "about", 64, (("one", "two"),))


def run(clock, plain, drafted, *, workload=CHAT, repeats=3, **settings):
    plan = RunPlan(repeats, SamplingParams(), clock=clock, **settings)
    methods = [fake_method("plain", plain), fake_method("dflash2", drafted)]
    (group,) = groups_of([workload], ["off"], [], [])
    return run_group(group, methods, plan)


@pytest.fixture
def plain(clock):
    return FakeSession(clock, plain_rounds(range(1, 9)))


@pytest.fixture
def drafted(clock):
    return FakeSession(clock, drafted_rounds([1], [2, 3, 4], [5, 6, 7, 8]))


def test_the_speed_up_is_the_ratio_of_the_rates_of_the_same_repeat(clock, plain, drafted):
    found = run(clock, plain, drafted)
    ratio = found.speedup["dflash2"]
    assert ratio and ratio.samples == pytest.approx([3.5] * 3) and found.same_text
    whole = found.whole_speedup["dflash2"]
    assert whole and whole.median == pytest.approx(1.3 / 0.8)


def test_every_method_is_warmed_up_once_and_asked_the_same(clock, plain, drafted):
    run(clock, plain, drafted, repeats=3)
    assert len(plain.seen) == len(drafted.seen) == (1 + 3) * 2
    assert [request.prompt for request in plain.seen] == [request.prompt for request in drafted.seen]


def test_later_turns_hold_the_plain_answer_as_history(clock, plain, drafted):
    run(clock, plain, drafted)
    second = drafted.seen[1].prompt
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert second[1]["content"] == " 1 2 3 4 5 6 7 8"


def test_methods_take_turns_at_going_first(clock):
    order = []

    class Noting(FakeSession):
        def stream(self, request):
            order.append(self.name)
            return super().stream(request)

    sessions = {name: Noting(clock, plain_rounds([1, 2])) for name in ("plain", "dflash2")}
    for name, session in sessions.items():
        session.name = name
    workload = Workload("chat", "about", 64, (("one",),))
    run(clock, sessions["plain"], sessions["dflash2"], workload=workload, repeats=3)
    assert order[2:] == ["plain", "dflash2", "dflash2", "plain", "plain", "dflash2"]


def test_a_different_text_is_found_and_no_whole_speed_up_is_claimed(clock, plain):
    found = run(clock, plain, FakeSession(clock, drafted_rounds([1], [2, 9, 4], [5, 6, 7, 8])))
    assert not found.same_text and found.whole_speedup["dflash2"] is None
    assert [(d.method, d.turn, d.at, d.length) for d in found.differences] == [
        ("dflash2", 0, 2, 8),
        ("dflash2", 1, 2, 8),
    ]


def test_a_context_is_filled_with_a_document_before_the_first_message(clock, plain, drafted):
    (group,) = groups_of([CHAT], ["off"], [3000], [])
    run_group(group, [fake_method("plain", plain)], RunPlan(1, SamplingParams(), clock=clock, count_tokens=len))
    first = plain.seen[0].prompt[0]["content"]
    assert 2700 < len(first) <= 3000 and first.endswith("one") and group.name == "chat, 3000 prompt tokens"


def test_settings_reach_the_request(clock, plain):
    (off, on) = groups_of([CHAT], ["off", "on"], [], [17])
    for group in (off, on):
        run_group(group, [fake_method("plain", plain)], RunPlan(1, SamplingParams(), exact_length=True, clock=clock))
    assert plain.seen[0].text.reasoning == "off" and plain.seen[-1].text.reasoning is None
    assert {(r.engine.max_tokens, r.engine.end_tokens) for r in plain.seen} == {(17, NEVER_ENDS)}
    assert [off.name, on.name] == ["chat, 17 tokens", "chat, thinking on, 17 tokens"]


def verdict_of(clock, plain, drafted, **settings):
    return verdict([run(clock, plain, drafted, **settings)], replace(describe(None), bandwidth=None))


def test_the_verdict_says_faster_and_where(clock, plain, drafted):
    lines = verdict_of(clock, plain, drafted, repeats=5)
    assert lines[0] == (
        "DFlash 2 is faster than plain decoding here: 1.62x over the whole answer, 3.50x after its first token (chat)."
    )
    assert (
        "Faster: chat 1.62x." in lines and "The text was the same with and without drafting in every answer." in lines
    )


def test_a_slower_pair_is_called_slower_with_the_cost_of_a_round_and_advice(clock, plain, drafted):
    drafted.step_s = 0.4
    lines = verdict_of(clock, plain, drafted, repeats=5)
    assert "SLOWER than plain decoding" in lines[0] and "Slower: chat 0.76x." in lines
    assert "commits 3.50 tokens per round, but a round costs 4.0 plain steps" in lines[-1] and "--no-draft" in lines[-1]


def test_a_different_text_is_in_the_verdict(clock, plain):
    lines = verdict_of(clock, plain, FakeSession(clock, drafted_rounds([1], [2, 9, 4], [5, 6, 7, 8])))
    assert any("DIFFERS from plain decoding in 1 of 1 workloads (chat)" in line for line in lines)


def test_repeats_far_apart_are_called_rough(clock, plain):
    class Uneven(FakeSession):
        def stream(self, request):
            self.step_s = 0.1 + 0.1 * (len(self.seen) % 4)
            return super().stream(request)

    lines = verdict_of(clock, plain, Uneven(clock, drafted_rounds([1], [2, 3, 4], [5, 6, 7, 8])))
    assert any("The machine was busy" in line for line in lines)


def test_a_report_has_every_section_that_has_something_to_show(clock, plain, drafted):
    groups = [
        run_group(
            group, [fake_method("plain", plain), fake_method("dflash2", drafted)], RunPlan(2, GREEDY, clock=clock)
        )
        for group in groups_of([CHAT], ["off"], [], [32, 64])
    ]
    settings = RunSettings(2, 0.0, None, None, "coupled", False, "none")
    document = RunDocument(KIND, VERSION, describe(None), settings, tuple(groups))
    report = run_report(document)
    assert [section.key for section in report.sections] == [
        "speed",
        "latency",
        "gaps",
        "acceptance",
        "length",
        "turns",
        "memory",
    ]
    assert "Speed-up by answer tokens at most" in page(report)


def test_a_single_repeat_is_called_what_it_is(clock, plain, drafted):
    assert any("measured once" in line for line in verdict_of(clock, plain, drafted, repeats=1))


def test_two_repeats_are_told_to_be_too_few(clock, plain, drafted):
    assert "Looks faster: chat 1.62x." in verdict_of(clock, plain, drafted, repeats=2)
    settings = RunSettings(2, 0.0, None, None, "coupled", True, "none")
    group = run(clock, plain, drafted, repeats=2)
    report = run_report(RunDocument(KIND, VERSION, describe(None), settings, (group,)))
    assert "too few" in report.warning and report.warning in page(report)
    settled = replace(settings, repeats=5, quick=False)
    assert not run_report(RunDocument(KIND, VERSION, describe(None), settled, (group,))).warning


def test_the_headline_has_the_whole_answer_first_and_the_machine(clock, plain, drafted):
    settings = RunSettings(3, 0.0, None, None, "coupled", False, "none")
    report = run_report(RunDocument(KIND, VERSION, describe(None), settings, (run(clock, plain, drafted),)))
    assert [value for value, _ in report.figures] == ["1.62x", "3.50x", "1 of 1"]
    assert describe(None).chip in report.about and "3 repeats" in report.about
    assert [chart.title for chart in report.sections[0].charts] == [
        "Times plain decoding: right of the line drafting is faster, red is slower",
        "Rate after the first token",
    ]


def test_rejection_sampling_may_draw_another_text(clock, plain):
    other = FakeSession(clock, drafted_rounds([1], [2, 9, 4], [5, 6, 7, 8]))
    lines = verdict_of(clock, plain, other, judge=None)
    assert any("as they may" in line for line in lines) and not any("DIFFERS" in line for line in lines)
