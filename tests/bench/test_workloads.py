"""The bundled prompts, and documents of a wanted length."""

import pytest

from dflash2_mlx.bench.schema import call_problem
from dflash2_mlx.bench.workloads import bundled_workloads, chosen, harbour_log, shortened, with_document
from dflash2_mlx.errors import UsageError

KINDS = "short-chat long-code multi-turn-code maths json-tools long-summary japanese korean chinese editing"


def test_every_kind_of_text_has_its_own_workload():
    names = [workload.name for workload in bundled_workloads()]
    assert set(KINDS.split()) | {"long-question", "planning"} == set(names) and len(names) == 12


def test_tool_workloads_offer_functions_that_a_call_can_be_held_against():
    (tools,) = [workload.tools for workload in bundled_workloads() if workload.tools]
    assert call_problem("get_weather", '{"city": "Lisbon", "day": "today"}', tools) is None


def test_a_document_fills_the_prompt_up_to_the_wanted_length_and_not_beyond():
    for tokens in (300, 2000, 10_000):
        text = with_document("What now?", tokens, lambda message: len(message) // 4)
        assert tokens - 60 < len(text) // 4 <= tokens and text.endswith("\n\nWhat now?")


def test_a_question_longer_than_the_wanted_length_stays_as_it_is():
    assert with_document("word " * 100, 10, len) == "word " * 100


def test_the_log_is_the_same_every_time_and_no_entry_repeats():
    lines = harbour_log(300).splitlines()
    assert harbour_log(300).splitlines() == lines and len({line.split(". ", 1)[1] for line in lines}) == 300


def test_a_quick_look_keeps_one_conversation_of_two_turns():
    planning = chosen(bundled_workloads(), ["planning"])[0]
    quick = shortened(planning, max_tokens=64, document_tokens=500)
    assert quick.conversations == (planning.conversations[0][:2],) and quick.max_tokens == 64


def test_an_unknown_workload_is_refused_with_the_names_that_exist():
    with pytest.raises(UsageError, match=r"there is no workload poetry\. Give one of short-chat"):
        chosen(bundled_workloads(), ["poetry"])
