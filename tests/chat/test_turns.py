"""The chat's own turns over the bundled pair: every text is what a fresh program given the whole history writes."""

import os
import signal

import pytest

from dflash2_mlx.api import generate, load
from dflash2_mlx.chat.accepted import Attribution
from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Delta, Finished, Round
from dflash2_mlx.session.session import Request, Session
from dflash2_mlx.text.channels import Channels
from dflash2_mlx.text.stream import TokenDecoder
from stages import Script, Talk

QUESTIONS = ("What is speculative decoding?", "Who are you?", "Tell me a story about a fox.")
GREEDY = SamplingParams()


@pytest.fixture(scope="module")
def pair():
    return load("demo")


@pytest.fixture
def talk(pair):
    return Talk(Session(pair, cache_bytes=2**26))


class Interrupting(Session):
    """A session during whose answers Ctrl-C is pressed after so many rounds."""

    def __init__(self, pair, rounds):
        super().__init__(pair, cache_bytes=2**26)
        self.left = rounds
        self.after = 0  # events that came after the press

    def stream(self, request):
        for event in super().stream(request):
            yield event
            if isinstance(event, Round):
                self.left -= 1
                self.after += self.left < 0
                if self.left == 0:
                    os.kill(os.getpid(), signal.SIGINT)


def fresh(pair, messages):
    """A fresh session's answer to the whole history."""
    return generate(pair, messages, sampling=GREEDY)


@pytest.mark.slow
def test_three_turns_equal_fresh_answers_and_run_only_what_is_new(pair, talk):
    for number, question in enumerate(QUESTIONS):
        talk.hear(question)
        turn = talk.chat.conversation.turns[-1]
        messages = talk.chat.conversation.messages()[:-1]
        answer = fresh(pair, messages)
        assert (turn.answer, turn.reasoning) == (answer.text, answer.reasoning)
        summary = talk.chat.last.summary
        assert (summary.cached_tokens > 0) == (number > 0)
    assert summary.cached_tokens > summary.prompt_tokens / 2


@pytest.mark.slow
def test_an_answer_that_was_stopped_stays_and_the_next_one_follows_from_it(pair):
    session = Interrupting(pair, 4)
    talk = Talk(session, interactive=True)
    said = talk.hear(QUESTIONS[2])
    assert "Stopped. The part so far stays" in said and session.after <= 1
    (turn,) = talk.chat.conversation.turns
    whole = fresh(pair, [{"role": "user", "content": QUESTIONS[2]}])
    assert turn.stopped and whole.reasoning.startswith(turn.reasoning) and whole.text.startswith(turn.answer)
    talk.hear(QUESTIONS[1])
    turn = talk.chat.conversation.turns[-1]
    assert turn.answer == fresh(pair, talk.chat.conversation.messages()[:-1]).text


def test_ctrl_c_in_a_pipe_ends_the_program_with_130(pair):
    talk = Talk(Interrupting(pair, 2))
    assert talk.run(Script(QUESTIONS)) == 130 and len(talk.chat.conversation.turns) == 1


@pytest.mark.slow
def test_a_retry_gives_the_same_greedy_text(pair, talk):
    talk.hear(QUESTIONS[0])
    before = talk.chat.conversation.turns[-1]
    assert "will be the same" in talk.hear("/retry")
    assert talk.chat.conversation.turns == [before] and talk.chat.last.summary.cached_tokens > 0


@pytest.mark.slow
def test_an_edited_first_question_is_answered_as_by_a_fresh_program(pair, talk):
    talk.chat.stage.edits = True
    talk.hear(QUESTIONS[0], QUESTIONS[1], "/undo", "/edit")
    assert talk.chat.prefill == QUESTIONS[0] and not talk.chat.conversation.turns
    talk.hear(QUESTIONS[2])
    assert talk.chat.conversation.turns[0].answer == fresh(pair, talk.chat.conversation.messages()[:-1]).text


@pytest.mark.slow
def test_no_drafting_and_any_block_size_change_no_text(talk):
    talk.hear(QUESTIONS[2], "/draft off", "/retry", "/stats")
    assert talk.chat.last.summary.mode == "plain"
    plain = talk.chat.conversation.turns[0].answer
    talk.hear("/block 3", "/retry")
    assert talk.chat.last.summary.block_size == 3 and talk.chat.conversation.turns[0].answer == plain
    talk.hear("/draft on", "/retry")
    assert talk.chat.last.summary.block_size == 8 and talk.chat.conversation.turns[0].answer == plain


def test_a_failed_turn_keeps_the_message_and_the_conversation(talk):
    talk.hear(QUESTIONS[0])
    script = Script(["long " * 40_000])
    assert talk.run(script) == 1
    said = talk.err.getvalue()
    assert "prompt is too long" in said and "32768 maximum" in said and "/drop 1" in said and "/clear" in said
    assert script.prefills[-1] == "long " * 40_000 and len(talk.chat.conversation.turns) == 1


@pytest.mark.parametrize(("edits", "kept"), [(True, True), (False, False)], ids=["line editor", "plain lines"])
def test_a_message_is_said_to_be_in_the_prompt_only_where_it_is(pair, monkeypatch, edits, kept):
    talk = Talk(Interrupting(pair, 1), interactive=True)
    talk.chat.stage.edits = edits
    talk.hear(QUESTIONS[1])
    monkeypatch.setattr(pair.target, "context_limit", 5)
    assert ("back in the prompt" in talk.hear(QUESTIONS[0])) == kept
    talk.chat.prefill = ""
    (turn,) = talk.chat.conversation.turns
    assert "back in the prompt" not in talk.hear("/retry")
    assert talk.chat.conversation.turns == [turn] and not talk.chat.prefill


@pytest.mark.slow
def test_a_failing_device_costs_one_turn_only(pair, talk, monkeypatch):
    talk.hear(QUESTIONS[1])
    with monkeypatch.context() as patch:
        patch.setattr(talk.chat.session, "stream", lambda request: (_ for _ in ()).throw(RuntimeError("no memory")))
        assert "the answer failed: no memory" in talk.hear(QUESTIONS[0])
    assert talk.chat.prefill == QUESTIONS[0] and len(talk.chat.conversation.turns) == 1
    talk.hear(QUESTIONS[0])
    assert len(talk.chat.conversation.turns) == 2


def test_running_out_of_tokens_while_thinking_is_said(talk):
    said = talk.hear("/set max_tokens=3", QUESTIONS[0])
    assert "ran out of tokens while thinking (3)" in said and "/think low" in said and "max_tokens" in said


def test_an_answer_that_is_cut_says_so(talk):
    assert "cut at 5 tokens" in talk.hear("/think off", "/set max_tokens=5", QUESTIONS[0])


def test_a_full_context_is_said(pair, talk, monkeypatch):
    monkeypatch.setattr(pair.target, "context_limit", 30)
    assert "The context is full (30 of 30 tokens)" in talk.hear("/think off", QUESTIONS[2])


@pytest.mark.slow
def test_a_file_goes_in_front_of_the_next_message_only(talk, tmp_path):
    (tmp_path / "notes.txt").write_text("buy milk")
    talk.hear(f"/file {tmp_path}/notes.txt", "Who are you?", "Who are you?")
    first, second = talk.chat.conversation.turns
    assert first.question == "notes.txt:\n```\nbuy milk\n```\n\nWho are you?" and second.question == "Who are you?"


def test_levels_that_the_template_cannot_express_are_refused_with_those_it_can(talk):
    assert "off" in talk.hear("/think enormous") and talk.chat.settings.reasoning is None
    assert "how much: low" in talk.hear("/think low")


def test_tokens_counts_what_the_model_would_read(pair, talk):
    assert "nothing was said yet" in talk.hear("/tokens")
    said = talk.hear("/think off", QUESTIONS[1], "/tokens")
    summary = talk.chat.last.summary
    count = int(said.rsplit("turn, ")[1].split()[0])
    assert count >= summary.prompt_tokens + summary.completion_tokens - 1


@pytest.mark.slow
def test_every_character_is_attributed_to_its_token(pair):
    """The drafted text of a round is the text of its accepted tokens, tags and cut-off newlines left out."""
    tags = Channels(pair.tokenizer, start="answer").tags
    for question in (*QUESTIONS, "Say hello in Japanese."):
        attribution = Attribution(TokenDecoder(pair.tokenizer, tags=tags), pair.tokenizer.think_end)
        decoder = TokenDecoder(pair.tokenizer, tags=tags)
        drafted, total, expected, text = 0, 0, 0, ""
        for event in Session(pair).stream(Request([{"role": "user", "content": question}], GREEDY)):
            if isinstance(event, Round):
                attribution.add(event)
                for number, token in enumerate(event.tokens):
                    piece = decoder.push(token)
                    expected += len(piece) * (number < event.accepted)
                    total += len(piece)
            elif isinstance(event, Delta):
                pieces = attribution.pieces(event)
                assert "".join(piece for piece, _ in pieces) == event.text
                drafted += sum(len(piece) for piece, accepted in pieces if accepted)
                text += event.text
            elif isinstance(event, Finished):
                assert 0 <= expected - drafted <= total - len(text)  # only characters that are not shown may lack


def test_settings_refuse_as_they_do_everywhere(talk):
    assert "temperature" in talk.hear("/set temperature=-1") and talk.chat.settings.sampling == GREEDY
    assert "block size 9" in talk.hear("/block 9") and talk.chat.settings.engine == EngineParams()
    with pytest.raises(UsageError):
        talk.chat.settings.set("top_k=x")


def test_an_answer_of_no_tokens_makes_no_turn_and_keeps_the_question(pair, talk, monkeypatch):
    said = talk.hear("/set max_tokens=0", "Who are you?")
    assert "cut at 0 tokens" in said and not talk.chat.conversation.turns and talk.chat.prefill == "Who are you?"
    talk.hear("/set max_tokens=off")
    tokens = len(pair.chat.render([{"role": "user", "content": "Who are you?"}]).tokens)
    monkeypatch.setattr(pair.target, "context_limit", tokens)
    assert "The context is full" in talk.hear("Who are you?") and not talk.chat.conversation.turns
