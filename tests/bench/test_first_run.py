"""What `make run` says of what `bench` measured: losers in red, a conclusion, and what to type next."""

import io
import sys
from pathlib import Path

import pytest
from bench_fakes import FakeSession, drafted_rounds, fake_method, plain_rounds
from rich.console import Console

from dflash2_mlx.bench.run import RunPlan, groups_of, run_group
from dflash2_mlx.bench.workloads import Workload
from dflash2_mlx.config import SamplingParams

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import first_run


def result(clock, step_s=0.1, text=(2, 3, 4)):
    plain = FakeSession(clock, plain_rounds([1, 2, 3, 4]))
    drafted = FakeSession(clock, drafted_rounds([1], text), step_s=step_s)
    (group,) = groups_of([Workload("Who are you?", "", 64, (("Who are you?",),))], ["off"], [], [])
    methods = [fake_method("plain", plain), fake_method("dflash2", drafted)]
    return run_group(group, methods, RunPlan(5, SamplingParams(), parts=False, clock=clock))


@pytest.mark.parametrize(("step_s", "style"), [(0.1, "green"), (0.9, "bold red")])
def test_a_prompt_that_is_slower_beyond_noise_is_in_another_colour(clock, step_s, style):
    spans = first_run.row(result(clock, step_s)).spans
    assert {str(span.style) for span in spans if span.style} == {style}


def test_a_text_that_differs_is_told_and_has_no_ratio_of_the_whole(clock):
    text = first_run.row(result(clock, text=(2, 9, 4)))
    assert text.plain.endswith("DIFFERENT") and " - " in text.plain


def test_it_ends_in_a_conclusion_and_the_next_three_commands(clock):
    console = Console(file=io.StringIO(), width=80)
    first_run.conclude(console, ["Faster than plain.", "Slower: Who are you? 0.80x."])
    lines = console.file.getvalue().strip().splitlines()
    assert lines[:3] == ["Faster than plain.", "Slower: Who are you? 0.80x.", ""]
    assert [line.split("dflash2-mlx ")[1].split()[0] for line in lines[-3:]] == ["chat", "serve", "bench"]
    assert max(map(len, lines)) <= 80 or not Path(sys.executable).is_relative_to(Path.cwd())


def test_the_figures_for_programs_are_medians_over_the_prompts(clock):
    found = first_run.figures([result(clock), result(clock), result(clock, text=(2, 9, 4))])
    assert found == {"ratio": 3.0, "whole_ratio": 1.286, "tokens_per_round": 3.0}
