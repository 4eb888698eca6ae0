"""Threads, warming up and wired memory: what a session does once, and where its events may be taken."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module

import mlx.core as mx
import pytest

from dflash2_mlx.api import gather, generate, load, stream_generate
from dflash2_mlx.bench.timing import measure_parts
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.engine.widths import WidthPolicy
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Finished, Prefilling, Round
from dflash2_mlx.session.known import known_of
from dflash2_mlx.session.session import Request, Session, warm_up
from dflash2_mlx.session.statistics import Stats
from fakes import TARGET_CONFIGS
from folders import write_drafter, write_target

SAMPLING = SamplingParams(logit_bias={256: -1000.0, 258: -1000.0})
ENGINE, RAW = EngineParams(max_tokens=20), TextParams(raw=True)
REQUEST = Request("once upon a time", SAMPLING, ENGINE, RAW)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return tiny_pair(tmp_path_factory.mktemp("opening"))


@pytest.fixture
def elsewhere() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def tiny_pair(root, family="qwen3_5", **drafter):
    return load(str(write_target(root / "target", family)), str(write_drafter(root / "drafter", **drafter)))


def ask(pair):
    return generate(pair, REQUEST.prompt, sampling=SAMPLING, engine=ENGINE, text=RAW)


@pytest.mark.parametrize("family", TARGET_CONFIGS)
def test_a_pair_loaded_on_one_thread_answers_on_another(tmp_path, elsewhere, family):
    pair = tiny_pair(tmp_path, family, is_causal=True)
    answer = elsewhere.submit(ask, pair).result()
    assert answer.summary.rounds and answer.tokens == elsewhere.submit(ask, pair).result().tokens


def test_what_a_model_computes_when_it_is_built_is_there_once_it_is_loaded(tmp_path, elsewhere):
    """Rotary frequencies that a checkpoint scales are an array, no parameter, and lazy."""
    target = write_target(tmp_path / "target", "llama")
    config = json.loads((target / "config.json").read_text())
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    config["rope_scaling"] = {**scaling, "original_max_position_embeddings": 64}
    (target / "config.json").write_text(json.dumps(config))
    pair = load(str(target), str(write_drafter(tmp_path / "drafter")))
    assert elsewhere.submit(ask, pair).result().tokens == ask(pair).tokens


def test_a_session_that_keeps_texts_may_answer_on_one_thread_after_the_other(pair, elsewhere):
    session, expected = Session(pair, cache_bytes=2**30), ask(pair).tokens
    for submit in (lambda work: work(), lambda work: elsewhere.submit(work).result()) * 2:
        assert submit(lambda: gather(session.stream(REQUEST))).tokens == expected


@pytest.mark.parametrize("last", [Prefilling, Round])
def test_a_stream_that_moves_to_another_thread_is_refused_in_one_line_and_the_pair_goes_on(pair, elsewhere, last):
    expected = ask(pair).tokens
    events = stream_generate(pair, REQUEST.prompt, sampling=SAMPLING, engine=ENGINE, text=RAW)
    while not isinstance(next(events), last):
        pass
    with pytest.raises(UsageError, match="one thread") as error:
        elsewhere.submit(next, events).result()
    assert "\n" not in str(error.value) and not known_of(pair).answering
    assert ask(pair).tokens == expected


def test_a_whole_answer_may_be_ended_on_any_thread(pair, elsewhere):
    events = stream_generate(pair, REQUEST.prompt, sampling=SAMPLING, engine=ENGINE, text=RAW)
    while not isinstance(next(events), Finished):
        pass
    assert elsewhere.submit(next, events, "over").result() == "over"


def test_a_stream_closed_on_another_thread_keeps_nothing_of_its_text_and_the_pair_goes_on(pair, elsewhere):
    session, expected = Session(pair, cache_bytes=2**30), ask(pair).tokens
    events = session.stream(REQUEST)
    while not isinstance(next(events), Round):
        pass
    elsewhere.submit(events.close).result()
    assert session.prefixes.nbytes == 0 and gather(session.stream(REQUEST)).tokens == expected


def test_a_pair_is_warmed_up_once_by_whoever_answers_first_and_learns_nothing_from_it(tmp_path, monkeypatch):
    pair, learnt, drafts = tiny_pair(tmp_path), [], []
    record, propose = WidthPolicy.record, pair.drafter.propose
    monkeypatch.setattr(WidthPolicy, "record", lambda *args: learnt.append(args) or record(*args))
    monkeypatch.setattr(pair.drafter, "propose", lambda *args: drafts.append(args[1]) or propose(*args))
    Session(pair).open()
    assert known_of(pair).warm and drafts and not learnt
    drafts.clear()
    for again in (lambda: Session(pair).open(), lambda: warm_up(pair)):
        again()
    assert not drafts
    assert ask(pair).summary.rounds == len(drafts)


def test_a_pair_without_a_drafter_is_answered_at_once(tmp_path):
    plain = load(str(write_target(tmp_path / "target")), speculate=False)
    Session(plain).open()
    assert ask(plain).summary.mode == "plain"


def test_warming_up_is_none_of_the_first_answers_time(pair, monkeypatch):
    steps: list[str] = []
    monkeypatch.setattr("dflash2_mlx.session.session.warm_up", lambda _: steps.append("warm"))
    monkeypatch.setattr(
        "dflash2_mlx.session.answer.Stats", lambda **given: steps.append("clock starts") or Stats(**given)
    )
    ask(pair)
    assert steps == ["warm", "clock starts"]


@pytest.fixture
def limits(monkeypatch) -> list[str]:
    """What is done to the wired limit."""
    seen: list[str] = []

    @contextmanager
    def wired_limit(_: object) -> Iterator[None]:
        seen.append("set")
        yield
        seen.append("reset")

    monkeypatch.setattr(import_module("mlx_lm.generate"), "wired_limit", wired_limit)
    monkeypatch.setattr("dflash2_mlx.session.session.mx.metal.is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda *_: {"max_recommended_working_set_size": 2**40})
    return seen


def test_the_wired_limit_is_set_once_while_a_session_is_open(pair, limits):
    with Session(pair) as session:
        for _ in range(2):
            list(session.stream(REQUEST))
        assert limits == ["set"]
    assert limits == ["set", "reset"]
    session.close()
    assert limits == ["set", "reset"]


def test_an_answer_outside_an_open_session_sets_the_wired_limit_for_itself(pair, limits):
    ask(pair)
    assert limits == ["set", "reset"]
    events = Session(pair).stream(REQUEST)
    next(events)
    events.close()
    assert limits == ["set", "reset"] * 2


def test_a_pair_that_cannot_be_warmed_up_leaves_nothing_wired(tmp_path, monkeypatch, limits):
    pair = tiny_pair(tmp_path)
    monkeypatch.setattr(pair.drafter, "propose", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask(pair)
    assert limits == [] and not known_of(pair).answering


def test_timing_with_waits_teaches_the_pair_no_widths(pair, monkeypatch):
    learnt = []
    monkeypatch.setattr(WidthPolicy, "record", lambda policy, rows, accepted: learnt.append(policy))
    measure_parts(pair, REQUEST)
    assert learnt and known_of(pair).widths not in learnt
