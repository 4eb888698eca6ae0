"""What `bench check` takes for a fault and what for rounding, with scripted sessions."""

from dataclasses import replace

import pytest
from bench_fakes import FakeClock, FakeSession, plain_rounds

from dflash2_mlx.bench.check import Checker, CheckPlan, valid_calls
from dflash2_mlx.bench.judge import Judge
from dflash2_mlx.bench.schema import call_problem
from dflash2_mlx.bench.workloads import Workload
from dflash2_mlx.events import Finished, ToolCall

CHAT = Workload("chat", "about", 64, (("one",),))
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "day": {"enum": ["today", "tomorrow"]},
                "hours": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def judge(margin):
    """Says that plain decoding led by `margin` wherever it is asked."""
    return Judge(1e-3, lambda request, at, other: margin)


def findings(plain_tokens, drafted_tokens, *, margin=1.0, workload=CHAT):
    clock = FakeClock()
    sessions = {1: FakeSession(clock, plain_rounds(plain_tokens)), 4: FakeSession(clock, plain_rounds(drafted_tokens))}
    plan = CheckPlan(sessions.__getitem__, (4,), judge(margin), 64, (1,), 40, len)
    return [finding for finding in Checker(plan, [workload]).findings() if finding.check == "greedy"]


def test_equal_texts_are_the_same():
    (found,) = findings([1, 2, 3], [1, 2, 3])
    assert (found.kind, found.tokens, found.at) == ("same", 3, None)


def test_a_difference_where_plain_decoding_was_sure_is_a_fault():
    (found,) = findings([1, 2, 3], [1, 102, 3], margin=0.5)
    assert (found.kind, found.at) == ("fault", 1) and found.margin == pytest.approx(0.5)


def test_a_difference_at_a_near_tie_is_rounding_and_still_shown():
    (found,) = findings([1, 2, 3], [1, 102, 3], margin=1e-4)
    assert found.kind == "rounding" and found.margin == pytest.approx(1e-4)


def test_a_text_that_stops_early_is_a_fault():
    (found,) = findings([1, 2, 3], [1, 2], margin=1e-4)
    assert (found.kind, found.at) == ("fault", 2)


def test_another_reason_to_end_is_a_fault():
    clock = FakeClock()

    class Long(FakeSession):
        def stream(self, request):
            for event in super().stream(request):
                yield replace(event, reason="length") if isinstance(event, Finished) else event

    sessions = {1: FakeSession(clock, plain_rounds([1])), 4: Long(clock, plain_rounds([1]))}
    plan = CheckPlan(sessions.__getitem__, (4,), judge(0.0), 64, (1,), 40, len)
    found = next(iter(Checker(plan, [CHAT]).findings()))
    assert found.kind == "fault" and "ended by length, plain by stop" in found.why


def test_a_stop_string_that_is_not_honoured_is_a_fault():
    clock = FakeClock()
    session = FakeSession(clock, plain_rounds([1, 2, 3]))
    plan = CheckPlan(lambda _: session, (4,), judge(0.0), 64, (1,), 40, len)
    found = [f for f in Checker(plan, [CHAT]).findings() if f.check == "stop"]
    assert [f.kind for f in found] == ["fault"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"city": "Lisbon"}', None),
        ('{"city": "Lisbon", "day": "today", "hours": [1, 2]}', None),
        ("{}", "'city' is a required property"),
        ('{"city": 3}', "$.city: 3 is not of type 'string'"),
        ('{"city": "x", "day": "sunday"}', "'sunday' is not one of"),
        ('{"city": "x", "hours": [1, "2"]}', "hours[1]: '2' is not of type 'integer'"),
        ('{"city": "x", "hours": [true]}', "True is not of type 'integer'"),
        ('{"city": "x", "zip": 1}', "('zip' was unexpected)"),
        ("[1]", "not of type 'object'"),
        ("{", "no JSON"),
    ],
)
def test_a_tool_call_is_held_against_its_schema(arguments, words):
    found = call_problem("get_weather", arguments, [WEATHER])
    assert found is None if words is None else found and words in found


def test_a_call_of_an_unknown_function_is_no_valid_call():
    assert call_problem("fly", "{}", [WEATHER]) == "there is no function 'fly'"


def test_calls_and_valid_calls_are_counted(clock):
    from dflash2_mlx.bench.answers import measure
    from dflash2_mlx.config import SamplingParams
    from dflash2_mlx.session.session import Request

    calls = [ToolCall("get_weather", '{"city": "Oslo"}', ""), ToolCall("get_weather", "{}", "")]
    answer = measure(FakeSession(clock, plain_rounds([1]), calls=calls), Request("x", SamplingParams()), clock)
    assert valid_calls(answer, replace(CHAT, tools=(WEATHER,))) == (2, 1)
