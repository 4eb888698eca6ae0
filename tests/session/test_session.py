"""Whole answers over a tiny pair: stop strings, cancelling, defaults, statistics."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dflash2_mlx.api import gather, generate, load, stream_generate
from dflash2_mlx.config import EngineParams, LoadParams, SamplingParams, TextParams
from dflash2_mlx.engine.widths import WidthPolicy
from dflash2_mlx.errors import PromptError, UsageError
from dflash2_mlx.events import Delta, Finished, Prefilling, Round
from dflash2_mlx.session.known import known_of
from dflash2_mlx.session.session import Request, Session, warm_up
from folders import write_drafter, write_target

NO_END = SamplingParams(logit_bias={256: -1000.0, 258: -1000.0})
ENGINE = EngineParams(max_tokens=40)
RAW = TextParams(raw=True)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    root = tmp_path_factory.mktemp("session")
    return load(str(write_target(root / "target")), str(write_drafter(root / "drafter")))


def ask(pair, *, engine=ENGINE, text=RAW, sampling=NO_END):
    return generate(pair, "once upon a time", sampling=sampling, engine=engine, text=text)


@pytest.mark.parametrize("block_size", [1, 5, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 8))])
def test_a_stop_string_ends_the_text_right_before_it_and_the_count_runs_through_it(pair, block_size):
    whole = ask(pair)
    start = whole.text.index(whole.text[20:23])
    stop = whole.text[start : start + 3]
    cut = ask(
        pair,
        engine=EngineParams(max_tokens=40, block_size=block_size),
        text=TextParams(raw=True, stop=(stop,)),
    )
    assert cut.finish_reason == "stop" and cut.text == whole.text[: whole.text.index(stop)]
    assert cut.tokens == whole.tokens[: len(cut.tokens)] and cut.summary.completion_tokens == len(cut.tokens)


def test_nothing_of_a_stop_string_is_ever_shown(pair):
    whole = ask(pair).text
    stop = whole[10:14]
    shown = ""
    for event in stream_generate(
        pair, "once upon a time", sampling=NO_END, engine=ENGINE, text=TextParams(raw=True, stop=(stop,))
    ):
        shown += event.text if isinstance(event, Delta) else ""
        assert whole.startswith(shown) and len(shown) <= whole.index(stop)


def test_events_come_in_order_and_finished_is_last(pair):
    events = list(stream_generate(pair, "once upon a time", sampling=NO_END, engine=ENGINE, text=RAW))
    assert isinstance(events[0], Prefilling) and isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1


@pytest.mark.slow
def test_an_answer_closed_midway_leaves_the_pair_fit_for_the_next(pair):
    whole = ask(pair)
    for rounds in range(4):
        events = stream_generate(pair, "once upon a time", sampling=NO_END, engine=ENGINE, text=RAW)
        seen = 0
        while seen <= rounds:
            seen += isinstance(next(events), Round)
        events.close()
        assert ask(pair).tokens == whole.tokens


def test_the_statistics_count_what_the_rounds_say(pair):
    engine = EngineParams(max_tokens=40, block_size=8)
    events = list(stream_generate(pair, "once upon a time", sampling=NO_END, engine=engine, text=RAW))
    rounds = [event for event in events if isinstance(event, Round)]
    summary = gather(iter(events)).summary
    drafted = [done for done in rounds if done.drafted]
    assert summary.completion_tokens == sum(len(done.tokens) for done in rounds) == 40
    assert summary.rounds == len(drafted) and summary.accepted == sum(done.accepted for done in drafted)
    assert summary.tokens_per_round == pytest.approx(sum(len(done.tokens) for done in drafted) / len(drafted))
    assert len(summary.acceptance_by_position) == 7 and summary.peak_bytes > 0
    widths = [done.drafted for done in rounds]
    assert summary.rounds_by_width == tuple(widths.count(drafted) for drafted in range(8))


def test_an_answer_of_no_tokens_has_no_rates(pair):
    summary = ask(pair, engine=EngineParams(max_tokens=0)).summary
    assert (summary.completion_tokens, summary.prefill_rate, summary.decode_rate) == (0, 0.0, 0.0)


def test_the_block_size_is_chosen_round_by_round_unless_one_is_given(pair):
    chosen, given = ask(pair), ask(pair, engine=EngineParams(max_tokens=40, block_size=5))
    assert chosen.tokens == given.tokens
    assert "automatic" in chosen.summary.block_size_reason and given.summary.block_size_reason == "asked for"
    assert sum(given.summary.rounds_by_width[1:4]) <= 3, "only the last rounds may be narrower"


def test_what_one_answer_learns_about_widths_serves_the_next_one(pair, monkeypatch):
    learnt = []
    monkeypatch.setattr(WidthPolicy, "record", lambda policy, rows, accepted: learnt.append(policy))
    ask(pair)
    list(Session(pair, cache_bytes=10**6).stream(Request("once", NO_END, ENGINE, RAW)))
    assert learnt and set(learnt) == {known_of(pair).widths}


@pytest.mark.slow
def test_rejection_keeps_one_width_since_its_text_depends_on_it(pair):
    sampling, engine = replace(NO_END, temperature=1.0, seed=3), EngineParams(max_tokens=40, acceptance="rejection")
    one, other = (ask(pair, sampling=sampling, engine=engine) for _ in range(2))
    assert one.tokens == other.tokens and "automatic" not in one.summary.block_size_reason


def test_sampling_defaults_come_from_the_generation_config(tmp_path):
    target = write_target(tmp_path / "target")
    (target / "generation_config.json").write_text('{"temperature": 0.7, "top_p": 0.8, "top_k": 20}')
    from dflash2_mlx.session.session import default_sampling

    known = default_sampling(load(str(target), speculate=False))
    assert (known.temperature, known.top_p, known.top_k, known.seed) == (0.7, 0.8, 20, None)


@pytest.mark.slow
def test_an_unquantised_drafter_is_quantised_on_load_and_changes_no_greedy_token(tmp_path, pair):
    target, drafter = write_target(tmp_path / "target"), write_drafter(tmp_path / "drafter")
    packed = load(str(target), str(drafter), draft_bits=8)
    assert packed.weight_bytes < pair.weight_bytes
    assert ask(packed).tokens == ask(pair).tokens


def test_target_and_drafter_share_one_embedding_and_head(pair):
    assert pair.drafter._embed.__self__ is pair.target and pair.drafter._head.__self__ is pair.target


def test_chat_messages_cannot_be_raw(pair):
    with pytest.raises(UsageError, match="chat template"):
        generate(pair, [{"role": "user", "content": "hi"}], text=RAW)


def test_an_empty_raw_prompt_is_refused(pair):
    with pytest.raises(PromptError, match="empty"):
        generate(pair, "  ", text=RAW)


def test_a_second_answer_on_a_pair_that_is_answering_is_refused_and_the_first_goes_on(pair):
    whole = ask(pair)
    first = stream_generate(pair, "once upon a time", sampling=NO_END, engine=ENGINE, text=RAW)
    opening = [next(first) for _ in range(3)]
    with pytest.raises(UsageError, match="already answering"):
        ask(pair)
    assert gather(iter([*opening, *first])).tokens == whole.tokens


def test_a_prompt_beyond_the_context_is_tokenised_once(pair, monkeypatch):
    texts, tokenizer = [], pair.tokenizer._tokenizer
    encode = tokenizer.encode

    def counted(text, **settings):
        texts.append(text)
        return encode(text, **settings)

    monkeypatch.setattr(tokenizer, "encode", counted)
    with pytest.raises(PromptError, match="too long"):
        next(Session(pair, cache_bytes=1).stream(Request("word " * 2000, SamplingParams())))
    assert len(texts) == 1


def test_warming_up_leaves_the_pair_as_it_was(pair):
    whole = ask(pair)
    warm_up(pair)
    assert not known_of(pair).answering and ask(pair).tokens == whole.tokens


WRONG = (
    (lambda: TextParams(stop=5), "stop is 5"),
    (lambda: TextParams(stop=(b"x",)), "a stop string is b'x'"),
    (lambda: TextParams(system=5), "system is 5"),
    (lambda: TextParams(reasoning=True), "reasoning is True"),
    (lambda: TextParams(tools="f"), "tools is 'f'"),
    (lambda: TextParams(tools={"name": "f"}), "tools is {'name'"),
    (lambda: TextParams(tools=["f"]), "a tool is 'f'"),
    (lambda: SamplingParams(logit_bias=[(1, 2)]), "logit_bias is"),
    (lambda: SamplingParams(logit_bias=None), "logit_bias is None"),
    (lambda: EngineParams(end_tokens=5), "end_tokens is 5"),
    (lambda: EngineParams(end_tokens="ab"), "end_tokens is 'ab'"),
    (lambda: EngineParams(end_tokens={1.5}), "an end token is 1.5"),
    (lambda: LoadParams(5), "model is 5"),
    (lambda: LoadParams(None), "model is None"),
    (lambda: LoadParams("demo", 5), "draft is 5"),
)


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_a_parameter_of_the_wrong_type_is_refused_by_name(make, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        make()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sampling": {"temperature": 1}}, "sampling is of type dict. Give SamplingParams(...)."),
        ({"sampling": ENGINE}, "sampling is of type EngineParams"),
        ({"engine": {"max_tokens": 5}}, "engine is of type dict"),
        ({"text": "raw"}, "text is of type str"),
    ],
)
def test_settings_of_another_type_are_refused_by_name(pair, settings, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        ask(pair, **settings)


def test_a_name_is_no_pair():
    with pytest.raises(UsageError, match="the pair is of type str"):
        generate("demo", "hello")


@pytest.mark.parametrize("prompt", [5, b"hello", {"role": "user", "content": "hello"}, (m for m in ())])
def test_a_conversation_of_another_type_is_refused(pair, prompt):
    with pytest.raises(PromptError, match="the conversation is of type"):
        generate(pair, prompt)


@pytest.mark.parametrize(
    "temperature", [1e-45, *(pytest.param(t, marks=pytest.mark.slow) for t in (1e-30, 1e-38, 1e-300))]
)
def test_a_temperature_that_float32_cannot_divide_by_is_greedy(pair, temperature):
    greedy = ask(pair)
    cold = replace(NO_END, temperature=temperature, seed=1)
    assert all(
        ask(pair, sampling=cold, engine=replace(ENGINE, block_size=rows)).tokens == greedy.tokens for rows in (1, 5)
    )


def test_what_can_only_be_meant_one_way_is_taken_so():
    assert TextParams(stop="END").stop == ("END",) and TextParams(stop=["a", "b"]).stop == ("a", "b")
    assert EngineParams(end_tokens=[1, 2]).end_tokens == {1, 2}
    assert LoadParams(Path("a/b"), Path("c")).model == "a/b" and TextParams(tools=[{"name": "f"}]).tools
