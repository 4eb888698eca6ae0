"""Prefix reuse changes no token: every answer over kept prefixes equals the one of a session that kept nothing."""

import random
from dataclasses import replace

import mlx.core as mx
import pytest
from session.talks import ENGINE, GREEDY, OPENING, PLENTY, TURN_END, Talk, interrupt, run, tiny_pair, words

from dflash2_mlx.api import gather, load
from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.errors import PromptError
from dflash2_mlx.events import Prefilling
from dflash2_mlx.session.session import Request, Session
from dflash2_mlx.text.prompt import Prompt
from folders import write_drafter, write_target

OTHERS = [pytest.param(family, marks=pytest.mark.slow) for family in ("qwen3", "muse_glimmer")]


@pytest.fixture(scope="module", params=["qwen3_5", *OTHERS])
def pair(request, tmp_path_factory):
    return tiny_pair(request.param, tmp_path_factory)


@pytest.fixture(scope="module", params=["qwen3_5", "qwen3", "muse_glimmer"])
def any_pair(request, tmp_path_factory):
    return tiny_pair(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    return tiny_pair("qwen3_5", tmp_path_factory)


@pytest.fixture(scope="module")
def demo():
    return load("demo")


@pytest.mark.parametrize("block_size", [8, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (1, 3))])
def test_three_turns_equal_fresh_runs_and_run_only_what_is_new(any_pair, block_size):
    pair, engine = any_pair, replace(ENGINE, block_size=block_size)
    session, talk = Session(pair, cache_bytes=PLENTY), Talk()
    kept = 0
    for turn in range(3):
        prompt = talk.ask(words(turn, 9 + 4 * turn))
        answer = run(session, prompt, engine)
        assert answer.tokens == run(Session(pair), prompt, engine).tokens
        assert answer.summary.cached_tokens == kept
        talk.hear(answer)
        kept = len(prompt.tokens) + len(answer.tokens) - 1


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [0, 1, 2, 4])
def test_after_an_interrupted_answer_the_next_equals_a_fresh_run_of_what_was_kept(pair, rounds):
    session, talk = Session(pair, cache_bytes=PLENTY), Talk()
    first = talk.ask(words(1, 20))
    part = interrupt(session, first, rounds)
    talk.tokens += [*OPENING, *part, *TURN_END]
    following = talk.ask(words(2, 5))
    answer = run(session, following)
    assert answer.tokens == run(Session(pair), following).tokens
    assert answer.summary.cached_tokens >= first.boundaries[0]


def test_an_answer_rendered_otherwise_falls_back_to_the_turn_before_it(pair):
    session, talk = Session(pair, cache_bytes=PLENTY), Talk()
    first = talk.ask(words(1, 30))
    run(session, first)
    talk.tokens += [*OPENING, 77, 78, 79, *TURN_END]
    following = talk.ask(words(2, 5))
    answer = run(session, following)
    assert answer.summary.cached_tokens == first.boundaries[0]
    assert answer.tokens == run(Session(pair), following).tokens


def test_an_answer_that_goes_on_is_taken_up_where_it_was_left(demo):
    session, asked = Session(demo, cache_bytes=PLENTY), {"role": "user", "content": "What can you do?"}
    said, cached = "You can ask", []
    for _ in range(2):
        prompt = demo.chat.render_for_reuse([asked, {"role": "assistant", "content": said}])
        answer = run(session, prompt, EngineParams(max_tokens=6))
        assert answer.tokens == run(Session(demo), prompt, EngineParams(max_tokens=6)).tokens
        said, cached = said + answer.text, [*cached, (answer.summary.cached_tokens, prompt.boundaries[-1])]
    assert cached[0][0] == 0 and cached[1][0] >= cached[0][1]


def test_the_same_prompt_again_gives_the_same_answer_from_its_boundary(pair):
    session, prompt = Session(pair, cache_bytes=PLENTY), Talk().ask(words(1, 30))
    answers = [run(session, prompt) for _ in range(3)]
    assert {answer.tokens for answer in answers} == {run(Session(pair), prompt).tokens}
    assert [answer.summary.cached_tokens for answer in answers] == [0, prompt.boundaries[0], prompt.boundaries[0]]
    assert answers[1].rounds == answers[0].rounds, "a restored drafter drafts as the one that read the prompt"


def test_branches_from_one_boundary_do_not_see_each_other(pair):
    """Every branch is run twice, in turn with the others, so that each would meet what another wrote."""
    session, head = Session(pair, cache_bytes=PLENTY), words(0, 40)
    prompts = [Prompt((*head, *words(seed, 8), *OPENING), "answer", (40, 48)) for seed in (1, 2, 3)]
    expected = [run(Session(pair), prompt).tokens for prompt in prompts]
    for number in (0, 1, 2, 0, 2, 1):
        answer = run(session, prompts[number])
        assert answer.tokens == expected[number]
    assert answer.summary.cached_tokens == 48, "a branch was lost although there was room"


def test_a_long_text_behind_a_shared_head_survives_another_text(hybrid):
    session, head = Session(hybrid, cache_bytes=PLENTY), words(0, 40)
    long = Prompt((*head, *words(1, 60), *OPENING), "answer", (40, 100))
    run(session, long)
    other = run(session, Prompt((*head, *words(2, 8), *OPENING), "answer", (40, 48)))
    assert other.summary.cached_tokens == 40
    assert run(session, long).summary.cached_tokens == 100


@pytest.mark.slow
def test_drafted_and_plain_answers_may_take_turns(pair):
    session, talk, plain = Session(pair, cache_bytes=PLENTY), Talk(), replace(ENGINE, block_size=1)
    for turn, engine in enumerate((ENGINE, plain, plain, ENGINE, ENGINE, plain, ENGINE)):
        prompt = talk.ask(words(turn, 7))
        answer = run(session, prompt, engine)
        assert answer.tokens == run(Session(pair), prompt, engine).tokens
        talk.hear(answer)
    assert answer.summary.cached_tokens > 0


@pytest.mark.slow
def test_a_full_attention_drafter_is_brought_back_too(tmp_path):
    drafter = write_drafter(tmp_path / "drafter", layer_types=["full_attention", "full_attention"])
    pair = load(str(write_target(tmp_path / "target")), str(drafter))
    session, head = Session(pair, cache_bytes=PLENTY), words(0, 40)
    for seed in (1, 2, 1, 2, 1):
        prompt = Prompt((*head, *words(seed, 8), *OPENING), "answer", (40, 48))
        fresh, answer = run(Session(pair), prompt), run(session, prompt)
        assert (answer.tokens, answer.rounds) == (fresh.tokens, fresh.rounds)


def test_a_failing_answer_takes_only_its_own_text_along(hybrid, monkeypatch):
    session = Session(hybrid, cache_bytes=PLENTY)
    kept, broken = Talk().ask(words(1, 30)), Talk().ask(words(2, 30))
    run(session, kept)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(hybrid.drafter, "propose", fail)
        with pytest.raises(RuntimeError):
            run(session, broken)
    assert run(session, kept).summary.cached_tokens == kept.boundaries[0]
    assert run(session, broken).tokens == run(Session(hybrid), broken).tokens


@pytest.mark.parametrize("step", ["_evict", "_fork", "_keep"])
def test_an_answer_that_cannot_be_opened_or_closed_leaves_the_cache_usable(hybrid, monkeypatch, step):
    session, head = Session(hybrid, cache_bytes=PLENTY), words(0, 40)
    first, second = (Prompt((*head, *words(seed, 8), *OPENING), "answer", (40, 48)) for seed in (1, 2))
    expected = run(session, first).tokens

    def fail(*_: object, **__: object) -> None:
        raise MemoryError(step)

    with monkeypatch.context() as patch:
        patch.setattr(session.prefixes, step, fail)
        with pytest.raises(MemoryError):
            run(session, second)
    assert run(session, first).tokens == expected
    assert run(session, second).tokens == run(Session(hybrid), second).tokens


@pytest.mark.parametrize(
    "drafter_layers", ["sliding_attention", pytest.param("full_attention", marks=pytest.mark.slow)]
)
def test_a_retry_after_a_long_answer_gives_back_what_the_answer_held(tmp_path, drafter_layers):
    drafter = write_drafter(tmp_path / "drafter", layer_types=[drafter_layers] * 2)
    pair = load(str(write_target(tmp_path / "target", "qwen3")), str(drafter))
    session, short = Session(pair, cache_bytes=PLENTY), Prompt(tuple(words(1, 19)), "answer", (16,))
    run(session, short)
    held = session.prefixes.nbytes
    long = tuple(words(1, 19)) + tuple(words(2, 700))
    session.prefixes.open(long, drafting=True)
    task = Task(long, GREEDY, replace(ENGINE, max_tokens=1))
    list(decode(pair.target, pair.drafter, task))  # as a long answer leaves the caches
    session.prefixes.close(long)
    assert session.prefixes.nbytes > 3 * held
    assert run(session, short).summary.cached_tokens == 16
    assert session.prefixes.nbytes <= 1.5 * held


def test_a_prompt_beyond_the_context_leaves_everything_as_it_was(hybrid):
    session, kept = Session(hybrid, cache_bytes=PLENTY), Talk().ask(words(1, 30))
    run(session, kept)
    before = (session.prefixes.nbytes, session.prefixes.boundaries)
    with pytest.raises(PromptError):
        run(session, Prompt(tuple([5] * 5000), "answer", (4000,)))
    assert (session.prefixes.nbytes, session.prefixes.boundaries) == before


def test_nothing_is_kept_without_a_budget(hybrid):
    session, prompt = Session(hybrid), Talk().ask(words(1, 30))
    run(session, prompt)
    assert run(session, prompt).summary.cached_tokens == 0
    assert (session.prefixes.nbytes, session.prefixes.boundaries) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("max_tokens", [0, 1])
def test_the_shortest_answers_leave_a_good_cache(pair, max_tokens):
    session, prompt = Session(pair, cache_bytes=PLENTY), Talk().ask(words(1, 30))
    for _ in range(2):
        run(session, prompt, EngineParams(max_tokens=max_tokens))
    assert run(session, prompt).tokens == run(Session(pair), prompt).tokens


@pytest.mark.slow
def test_the_budget_holds_and_the_oldest_texts_go_first(pair):
    probe = Session(pair, cache_bytes=PLENTY)
    run(probe, Talk().ask(words(0, 100)))
    session = Session(pair, cache_bytes=3 * probe.prefixes.nbytes)
    prompts = [Talk().ask(words(seed, 100)) for seed in range(5)]
    for prompt in prompts:
        run(session, prompt)
        assert session.prefixes.nbytes <= session.prefixes.budget_bytes
    assert run(session, prompts[-1]).summary.cached_tokens == prompts[-1].boundaries[0]
    assert run(session, prompts[0]).summary.cached_tokens == 0


def test_a_text_beyond_the_budget_stays_for_its_next_turn_only(pair):
    session, prompt = Session(pair, cache_bytes=1), Talk().ask(words(1, 30))
    run(session, prompt)
    assert run(session, prompt).summary.cached_tokens == prompt.boundaries[0]
    events = session.stream(Request(Talk().ask(words(2, 30)), GREEDY, ENGINE, TextParams()))
    assert isinstance(next(events), Prefilling) and session.prefixes.nbytes == 0, "two texts at a time"
    events.close()


@pytest.mark.slow
def test_a_long_talk_stays_within_the_budget_and_exact(pair):
    session = Session(pair, cache_bytes=300_000)
    talk = Talk(words(9, 20))
    for turn in range(8):
        prompt = talk.ask(words(turn, 12))
        prompt = replace(prompt, boundaries=(20, *prompt.boundaries))
        answer = run(session, prompt)
        if turn % 3 == 2:
            assert answer.tokens == run(Session(pair), prompt).tokens
        assert turn == 0 or answer.summary.cached_tokens > 20
        talk.hear(answer)
    assert run(session, Prompt((*words(9, 20), 1, 2, 3), "answer", (20,))).summary.cached_tokens == 20


@pytest.mark.slow
def test_sampled_text_of_a_seed_does_not_depend_on_what_was_kept(pair):
    session, talk = Session(pair, cache_bytes=PLENTY), Talk()
    sampling = replace(GREEDY, temperature=1.0, seed=7, repetition_penalty=1.2, presence_penalty=0.5)
    for turn in range(3):
        prompt = talk.ask(words(turn, 10))
        answer = run(session, prompt, sampling=sampling)
        assert answer.tokens == run(Session(pair), prompt, sampling=sampling).tokens
        talk.hear(answer)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_conversations_with_edits_and_interruptions_stay_exact(pair, seed):
    """Turns are added, taken back, edited and interrupted at random, drafted or plain, within a tight budget."""
    rng = random.Random(seed)
    session = Session(pair, cache_bytes=rng.choice([200_000, 600_000, PLENTY]))
    turns: list[tuple[list[int], list[int]]] = []
    for step in range(14):
        cut = rng.randrange(len(turns) + 1) if rng.random() < 0.4 else len(turns)
        del turns[cut:]
        talk = Talk(words(99, 20))
        for question, reply in turns:
            talk.ask(question)
            talk.tokens += [*OPENING, *reply, *TURN_END]
        question = words(1000 * seed + step, rng.randrange(1, 40))
        prompt = replace(talk.ask(question), boundaries=(20, len(talk.tokens)))
        engine = EngineParams(max_tokens=rng.randrange(1, 30), block_size=rng.choice([1, 2, 5, 8]), prefill_chunk=16)
        if rng.random() < 0.3:
            turns.append((question, interrupt(session, prompt, rng.randrange(4), engine)))
            continue
        answer = run(session, prompt, engine)
        assert answer.tokens == run(Session(pair), prompt, engine).tokens
        turns.append((question, list(answer.tokens)))


QUESTIONS = ("Who are you?", "What is the capital of France?", "Count to ten in Korean.")


@pytest.mark.slow
@pytest.mark.parametrize("reasoning", ["off", "low"])
def test_the_bundled_pair_remembers_a_conversation(demo, reasoning):
    """New tokens of a turn: its own, the template's glue, and the end of the answer before, which was the anchor."""
    session, messages, seen = Session(demo, cache_bytes=PLENTY), [], 0
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        request = Request(
            list(messages), SamplingParams(), EngineParams(max_tokens=200), TextParams(reasoning=reasoning)
        )
        answer, fresh = gather(session.stream(request)), gather(Session(demo).stream(request))
        assert answer.tokens == fresh.tokens and answer.text
        new = answer.summary.prompt_tokens - answer.summary.cached_tokens
        own = len(demo.tokenizer.encode(question, add_special_tokens=False))
        print(f"{answer.summary.prompt_tokens} prompt tokens, {new} new, {own} of them the turn's own")
        assert not seen or new <= own + 14  # 5 tokens of glue before the turn, 9 after it
        seen = answer.summary.prompt_tokens
        messages.append({"role": "assistant", "content": answer.text, "reasoning_content": answer.reasoning})


@pytest.mark.slow
def test_a_system_prompt_is_shared_between_conversations(demo):
    session, system = Session(demo, cache_bytes=PLENTY), {"role": "system", "content": "Be brief. " * 40}
    request = Request([system, {"role": "user", "content": "Hi"}], SamplingParams(), ENGINE, TextParams())
    first = gather(session.stream(request))
    other = replace(request, prompt=[system, {"role": "user", "content": "Who are you?"}])
    again = gather(session.stream(other))
    assert again.summary.cached_tokens > 0.8 * first.summary.prompt_tokens
    assert again.tokens == gather(Session(demo).stream(other)).tokens


@pytest.mark.slow
def test_memory_does_not_grow_while_a_kept_text_is_repeated(hybrid):
    session, prompt = Session(hybrid, cache_bytes=PLENTY), Talk().ask(words(1, 300))
    for _ in range(3):
        run(session, prompt)
    held, active = session.prefixes.nbytes, mx.get_active_memory()
    for _ in range(5):
        run(session, prompt)
    assert session.prefixes.nbytes == held
    assert mx.get_active_memory() <= active + 2**20


@pytest.mark.slow
def test_two_hundred_turns_leave_memory_flat_and_the_budget_kept(demo):
    """What MLX holds beside the weights is the kept texts and a constant; the kept texts stay within the budget."""
    session, messages, weights = Session(demo, cache_bytes=40 * 2**20), [], demo.weight_bytes
    beside, new = [], []
    for turn in range(200):
        messages.append({"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]})
        text = TextParams(reasoning="off")
        answer = gather(session.stream(Request(list(messages), SamplingParams(), EngineParams(max_tokens=64), text)))
        messages.append({"role": "assistant", "content": answer.text, "reasoning_content": answer.reasoning})
        held = session.prefixes.nbytes
        assert held <= session.prefixes.budget_bytes
        new.append(answer.summary.prompt_tokens - answer.summary.cached_tokens)
        mx.clear_cache()
        beside.append(mx.get_active_memory() - weights - held)
        if turn % 40 == 39:
            print(f"turn {turn + 1}: {held / 2**20:.1f} MiB kept, {beside[-1] / 2**20:.2f} MiB beside it")
    # an answer whose own tokens are not those that its text is read as is run again with the next turn
    assert max(new[1:]) < 40 + 64 and sum(count < 40 for count in new) > 180, new
    assert max(beside[100:]) <= max(beside[:100]) + 2**20


@pytest.mark.slow
def test_the_next_turn_after_a_long_history_starts_in_a_tenth_of_the_time(demo):
    session, off = Session(demo, cache_bytes=PLENTY), TextParams(reasoning="off")
    messages = [{"role": "user", "content": "The quick brown fox jumps over the lazy dog. " * 150}]
    first = gather(session.stream(Request(list(messages), SamplingParams(), ENGINE, off)))
    assert first.summary.prompt_tokens > 2000
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "Who are you?"}]
    request = Request(messages, SamplingParams(), ENGINE, off)
    warm, cold = gather(session.stream(request)), gather(Session(demo).stream(request))
    share = warm.summary.first_token_s / cold.summary.first_token_s
    print(f"first token after {warm.summary.first_token_s:.3f} s, cold {cold.summary.first_token_s:.3f} s: {share:.1%}")
    assert warm.tokens == cold.tokens and share < 0.1


def test_text_without_turns_comes_back_too(hybrid):
    session, text = Session(hybrid, cache_bytes=PLENTY), Prompt(tuple(words(3, 60)), "answer")
    first, again = run(session, text), run(session, text)
    longer = run(session, Prompt((*text.tokens, *words(4, 9)), "answer"))
    assert (first.summary.cached_tokens, again.summary.cached_tokens, longer.summary.cached_tokens) == (0, 59, 59)
    assert first.tokens == again.tokens
    assert (
        run(Session(hybrid, cache_bytes=PLENTY), Prompt((5,), "answer")).tokens
        == run(Session(hybrid), Prompt((5,), "answer")).tokens
    )
