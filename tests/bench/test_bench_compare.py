"""What counts as a change between two runs, and what the machine's noise is allowed to do."""

import io
import json
import os
import random
import threading

import pytest

from dflash2_mlx.bench.compare import KIND, compare, comparison_report
from dflash2_mlx.bench.numbers import spread


def samples(median, noise=0.0, count=5, seed=0):
    draws = random.Random(seed)
    return [median * (1 + draws.gauss(0, noise)) for _ in range(count)]


def as_json(values):
    found = spread(values)
    return {"median": found.median, "low": found.low, "high": found.high, "samples": list(found.samples)}


def run(
    tmp_path,
    name,
    *,
    ratio=1.8,
    plain=100.0,
    per_round=3.0,
    same=True,
    repeats=5,
    noise=0.01,
    seed=0,
    block_size=5,
    whole=None,
):
    figures = {"prefill_rate": as_json(samples(500, noise, repeats, seed + 2)), "first_token_s": None}
    methods = {
        "plain": {**figures, "decode_rate": as_json(samples(plain, noise, repeats, seed)), "tokens_per_round": 1.0},
        "dflash2": {
            **figures,
            "decode_rate": as_json(samples(plain * ratio, noise, repeats, seed + 3)),
            "tokens_per_round": per_round,
        },
    }
    group = {
        "name": "short-chat", "methods": methods, "same_text": same,
        "speedup": {"dflash2": as_json(samples(ratio, noise, repeats, seed + 1))},
        "whole_speedup": {"dflash2": as_json(samples(whole or ratio, noise, repeats, seed + 4))},
    }  # fmt: skip
    document = {
        "kind": KIND,
        "version": 1,
        "settings": {"repeats": repeats, "block_size": block_size},
        "environment": {},
        "groups": [group],
    }
    path = tmp_path / name
    path.write_text("some talk\n" + json.dumps(document) + "\n")
    return path


def changes(found):
    return {(change.method, change.figure, change.kind, change.better) for change in found.changes}


def test_two_runs_of_the_same_build_report_no_change(tmp_path):
    found = compare(run(tmp_path, "a.json"), run(tmp_path, "b.json", seed=50))
    assert not found.changes and not found.worse
    assert "Nothing changed beyond noise" in comparison_report(found).verdict[0]


def test_a_slower_build_is_a_change_for_the_worse(tmp_path):
    found = compare(run(tmp_path, "a.json"), run(tmp_path, "b.json", ratio=1.5, seed=50))
    assert ("dflash2", "speed-up", "drafting", False) in changes(found) and found.worse
    assert "worse" in comparison_report(found).verdict[0]


def test_a_slower_answer_is_a_change_even_where_decoding_is_as_fast(tmp_path):
    found = compare(run(tmp_path, "a.json"), run(tmp_path, "b.json", whole=1.2, seed=50))
    assert changes(found) == {("dflash2", "speed-up of the answer", "drafting", False)} and found.worse


def test_a_busier_machine_alone_is_not_a_change_of_drafting(tmp_path):
    found = compare(run(tmp_path, "a.json"), run(tmp_path, "b.json", plain=60.0, seed=50))
    assert {kind for _, _, kind, _ in changes(found)} == {"machine"} and not found.worse
    assert "Nothing changed" in comparison_report(found).verdict[0]


def test_fewer_tokens_per_round_and_another_text_are_changes_without_any_timing(tmp_path):
    found = compare(run(tmp_path, "a.json"), run(tmp_path, "b.json", per_round=2.9, same=False))
    assert changes(found) == {
        ("dflash2", "tokens per round", "drafting", False),
        ("all", "same text", "drafting", False),
    }


def test_where_widths_are_automatic_tokens_per_round_follow_the_clock_and_are_not_compared(tmp_path):
    found = compare(run(tmp_path, "a.json"), run(tmp_path, "b.json", per_round=2.9, block_size=None))
    assert not found.changes and any("widths were automatic" in note for note in found.notes)


def test_two_repeats_are_too_few_to_judge_speed(tmp_path):
    found = compare(run(tmp_path, "a.json", repeats=2), run(tmp_path, "b.json", ratio=1.0, repeats=2))
    assert not found.changes and any("fewer than 5 repeats" in note for note in found.notes)


@pytest.mark.parametrize("content", ["", "{}", "no json", "null", "[" * 100_000, b"\xff\xfe\x00", '{"kind": 3}'])
def test_a_file_that_is_no_run_is_refused_in_one_line(cli, tmp_path, content):
    other, good = tmp_path / "other.json", run(tmp_path, "a.json")
    other.write_bytes(content if isinstance(content, bytes) else content.encode())
    outcome = cli("compare", good, other)
    assert outcome.code == 2 and "holds no document of `dflash2-mlx bench run`" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_document_of_another_command_is_named(cli, tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"kind": "dflash2-mlx bench sweep"}')
    outcome = cli("compare", other, run(tmp_path, "a.json"))
    assert outcome.code == 2 and "is one of `dflash2-mlx bench sweep`, not of `dflash2-mlx bench run`" in outcome.err


def changed(tmp_path, name, change):
    path = run(tmp_path, name)
    document = json.loads(path.read_text().splitlines()[-1])
    change(document)
    path.write_text(json.dumps(document))
    return path


def test_a_document_of_another_version_is_refused(cli, tmp_path):
    newer = changed(tmp_path, "b.json", lambda found: found.update(version=2))
    outcome = cli("compare", run(tmp_path, "a.json"), newer)
    assert outcome.code == 2 and "is a document of version 2, and this program reads 1" in outcome.err


@pytest.mark.parametrize(
    "damage",
    [
        lambda method: method.pop("tokens_per_round"),
        lambda method: method.update(tokens_per_round="many"),
        lambda method: method.update(decode_rate={"samples": [1, 2, 3, 4, 5]}),
        lambda method: method.update(decode_rate={"samples": ["a"] * 5, "median": "x", "low": None, "high": 3}),
        lambda method: method.update(decode_rate={"samples": [10**400] * 5, "median": 1, "low": 1, "high": 1}),
    ],
)
def test_a_damaged_figure_is_one_line(cli, tmp_path, damage):
    broken = changed(tmp_path, "b.json", lambda found: damage(found["groups"][0]["methods"]["dflash2"]))
    outcome = cli("compare", run(tmp_path, "a.json"), broken)
    assert outcome.code == 2 and "is damaged" in outcome.err and len(outcome.err.splitlines()) == 1, outcome.err


def test_a_run_may_come_from_a_pipe_and_with_a_byte_order_mark(cli, tmp_path):
    source, pipe = run(tmp_path, "a.json"), tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"\xef\xbb\xbf" + source.read_bytes(),))
    writer.start()
    outcome = cli("compare", pipe, source)
    writer.join()
    assert outcome.code == 0 and outcome.document["compared"] > 3, outcome.err


def test_an_interrupted_run_is_named(tmp_path):
    part = changed(tmp_path, "b.json", lambda found: found.update(complete=False))
    assert f"{part} was interrupted" in compare(run(tmp_path, "a.json"), part).notes


def test_runs_without_a_common_workload_cannot_be_compared(cli, tmp_path):
    one, other = run(tmp_path, "a.json"), run(tmp_path, "b.json")
    other.write_text(other.read_text().replace("short-chat", "planning"))
    outcome = cli("compare", one, other)
    assert outcome.code == 2 and "no workload in common" in outcome.err


def test_the_command_prints_one_document_and_strict_fails_on_worse(cli, tmp_path):
    one, other = run(tmp_path, "a.json"), run(tmp_path, "b.json", ratio=1.2)
    assert cli("compare", one, other).code == 0
    outcome = cli("compare", one, other, "--strict")
    assert outcome.code == 1 and outcome.document["kind"] == "dflash2-mlx bench compare"
    assert cli("compare", other, one, "--strict").code == 0


@pytest.mark.parametrize(("words", "told"), [((), False), (("--json",), True)])
def test_on_a_terminal_the_document_comes_only_where_it_is_asked_for(cli, tmp_path, monkeypatch, words, told):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    one, other = run(tmp_path, "a.json"), run(tmp_path, "b.json")
    monkeypatch.setattr("sys.stdout", screen)
    outcome = cli("compare", one, other, *words)
    assert outcome.code == 0 and "Nothing changed beyond noise" in outcome.err
    assert bool(screen.getvalue()) == told
