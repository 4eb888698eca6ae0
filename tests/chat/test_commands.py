"""Commands without a model: what they say and what they change."""

import os
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from dflash2_mlx.chat import clipboard
from dflash2_mlx.chat.commands import COMMANDS, completion_words
from dflash2_mlx.chat.conversation import Turn
from dflash2_mlx.chat.prompt import CommandCompleter, LineReader, bursts
from dflash2_mlx.chat.status import ending, numbers, wrapped
from dflash2_mlx.errors import PromptError, UsageError
from dflash2_mlx.events import Finished, Summary
from stages import Script, Talk


@dataclass
class Silent:
    """A session that must not be asked."""

    pair: object = field(
        default_factory=lambda: SimpleNamespace(
            model_name="fake", chat=SimpleNamespace(levels={"off": ""}), target=SimpleNamespace(context_limit=100)
        )
    )


@pytest.fixture
def talk():
    talk = Talk(Silent())
    talk.chat.conversation.turns.append(Turn("question", "an answer\n```\ncode\n```\n", "a thought"))
    return talk


def test_help_names_every_command(talk):
    said = talk.hear("/help")
    assert all(name in said for name in COMMANDS) and "Alt-Enter" in said


def test_an_unknown_command_names_the_nearest_and_how_to_send_a_slash(talk):
    said = talk.hear("/sav x.json")
    assert "Did you mean /save?" in said and "// sends a message" in said
    assert "Did you mean" not in talk.hear("/xyzzy")


@pytest.mark.parametrize("line", ["/exit", "/bye", "/q", "/quit"])
def test_several_words_leave(talk, line):
    assert talk.chat.run(Script([line, "/help"])) == 0 and talk.chat.over and not talk.err.getvalue()


def test_a_command_that_takes_nothing_refuses_words(talk):
    assert "takes nothing" in talk.hear("/undo 2") and talk.chat.conversation.turns


def test_clear_forgets_turns_and_keeps_the_system_message(talk):
    talk.hear("/system Be kind.", "/clear")
    assert not talk.chat.conversation.turns and talk.chat.conversation.system == "Be kind."
    assert "no system message" in talk.hear("/system off")


def test_undo_edit_and_drop(talk):
    talk.chat.conversation.turns.append(Turn("second", "b"))
    assert "0 left" in talk.hear("/drop 2").replace("0 turns left", "0 left")
    assert "empty" in talk.hear("/undo") and "cannot drop" in talk.hear("/drop")
    assert "whole number" in talk.hear("/drop x")


def test_a_question_is_edited_only_where_there_is_a_line_editor(talk):
    assert "no line editor" in talk.hear("/edit") and talk.chat.conversation.turns
    talk.chat.stage.edits = True
    talk.hear("/edit")
    assert talk.chat.prefill == "question" and not talk.chat.conversation.turns


def test_set_takes_all_values_or_none(talk):
    assert "temperature=0.5" in talk.hear("/set temperature=0.5 top_k=3 max_tokens=10")
    talk.hear("/set top_p=0.5 nonsense=1")
    assert talk.chat.settings.sampling.top_p == 1 and talk.chat.settings.engine.max_tokens == 10
    talk.hear("/set max_tokens=off", "/seed 7")
    assert talk.chat.settings.engine.max_tokens is None and talk.chat.settings.sampling.seed == 7
    talk.hear("/seed off")
    assert talk.chat.settings.sampling.seed is None


def test_what_set_shows_it_also_takes(talk):
    talk.hear("/set top_k=1000000 temperature=0.7 repetition_penalty=1.0000001")
    shown = talk.hear("/set").strip()
    assert "top_k=1000000 " in shown and talk.hear(f"/set {shown}").strip() == shown


def test_save_and_load_name_what_happened(talk, tmp_path):
    path = tmp_path / "talk.json"
    assert "Saved 1 turn" in talk.hear(f"/save {path}")
    assert "nothing is overwritten" in talk.hear(f"/save {path}")
    assert "in place of 1 turn" in talk.hear(f"/load {path}")
    assert "Exported" in talk.hear(f"/export {tmp_path}/talk.md")


def test_thinking_is_shown_again_on_request(talk):
    talk.hear("/think hide")
    assert not talk.chat.settings.thinking
    assert "a thought" in talk.hear("/think show")


def test_marking_tokens_needs_a_terminal(talk):
    assert "only be marked" in talk.hear("/accepted") and not talk.chat.settings.accepted


def test_stats_before_any_answer_are_refused(talk):
    assert "no numbers yet" in talk.hear("/stats") and talk.hear("/models") == "pairs\n"


def test_copying_without_a_terminal_or_a_tool_is_refused(talk, monkeypatch):
    monkeypatch.setattr(clipboard.shutil, "which", lambda name: None)
    assert "no clipboard" in talk.hear("/copy")


def test_copy_sends_the_last_code_block_through_the_terminal():
    sent = []
    assert clipboard.copy("é", lambda codes: bool(sent.append(codes)) or True)[0] == "the terminal (OSC 52)"
    assert sent == ["\x1b]52;c;w6k=\x07"]
    assert clipboard.last_code("a\n```py\none\n```\n~~~~\ntwo\n~~~~\n") == "two\n"
    with pytest.raises(UsageError):
        clipboard.last_code("none")


def test_a_failing_line_makes_the_exit_code_of_a_pipe(talk):
    assert talk.chat.run(Script(["/undo", "/nope"])) == 2
    assert Talk(Silent()).chat.run(Script(["", "  "])) == 0


def test_an_interactive_chat_leaves_with_0_whatever_failed():
    assert Talk(Silent(), interactive=True).chat.run(Script(["/nope"])) == 0


def test_lines_of_a_pipe_are_turns_and_broken_text_is_refused():
    import io

    reader = LineReader(io.BytesIO(b"one\r\n\n  \ntwo\nbad \xff\nthree"))
    assert [reader.read(), reader.read()] == ["one", "two"]
    with pytest.raises(PromptError, match="line 5"):
        reader.read()
    assert reader.read() == "three"
    with pytest.raises(EOFError):
        reader.read()


def completions(text):
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    completer = CommandCompleter(dict.fromkeys(COMMANDS, ""), completion_words)
    return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]


def test_completion_knows_commands_words_and_files(tmp_path, monkeypatch):
    (tmp_path / "talk.json").write_text("")
    monkeypatch.chdir(tmp_path)
    assert completions("/ex") == ["/export"] and completions("/think h") == ["hide"]
    assert completions("/load ta") == ["lk.json"] and completions("/set top_p=1 top_") == ["top_p=", "top_k="]
    assert completions("//ex") == [] and completions("hello /ex") == []


def test_only_bursts_of_characters_are_pastes():
    from prompt_toolkit.key_binding.key_processor import KeyPress
    from prompt_toolkit.keys import Keys

    keys = [KeyPress(c, c) for c in "x" * 40] + [KeyPress(Keys.ControlM, "\r")] + [KeyPress(c, c) for c in "abc"]
    merged = bursts(keys)
    assert [key.key for key in merged] == [Keys.BracketedPaste, Keys.ControlM, "a", "b", "c"]
    assert merged[0].data == "x" * 40


def finished(reason, *, rounds=40):
    """The end of an answer of 200 tokens to a prompt of 40, 20 of them cached."""
    return Finished(
        reason,
        None,
        Summary(
            mode="drafted",
            block_size=5,
            block_size_reason="why",
            speculation_off=None if rounds else "no drafter",
            acceptance_rule="greedy",
            seed=None,
            prompt_tokens=40,
            cached_tokens=20,
            completion_tokens=200,
            rounds=rounds,
            drafted=160,
            accepted=130,
            tokens_per_round=4.25,
            acceptance=0.8125,
            acceptance_by_position=(),
            rounds_by_width=(1, 0, 0, 0, rounds),
            first_token_s=0.2,
            total_s=3.0,
            prefill_rate=100.0,
            decode_rate=61.34,
            peak_bytes=2**30,
        ),
    )


def test_the_line_about_an_answer_has_its_numbers():
    assert numbers(finished("stop").summary, 32768) == [
        *("61.3 tok/s", "4.25 tokens per round", "acceptance 81%", "first token 0.20 s"),
        *("prompt 20 cached + 20 new", "context 240 / 32768"),
    ]
    assert "drafting off: no drafter" in numbers(finished("stop", rounds=0).summary, 32768)


def test_drafting_that_rested_is_said():
    rested = replace(finished("stop", rounds=10).summary, rounds_by_width=(31, 0, 10))
    rested = replace(rested, plain_rate=60.0, drafted_rate=50.0)
    assert any("30 of 40 steps plain" in part for part in numbers(rested, 32768))
    short = replace(rested, rounds=3, rounds_by_width=(6, 0, 3))
    assert not any("plain" in part for part in [*numbers(short, 32768), *numbers(finished("stop").summary, 32768)])


def test_numbers_wrap_between_parts():
    assert wrapped(["aaaa", "bbbb", "cccc"], "·", 11) == ["aaaa · bbbb", "cccc"]


@pytest.mark.parametrize(
    ("reason", "thinking", "limit", "words"),
    [
        ("stop", True, 1000, "ended inside its thinking"),
        ("length", True, 1000, "ran out of tokens while thinking (200)"),
        ("length", False, 1000, "cut at 200 tokens"),
        ("length", False, 240, "context is full (240 of 240 tokens)"),
    ],
)
def test_an_end_before_the_end_is_said_in_words(reason, thinking, limit, words):
    assert words in (ending(finished(reason), thinking=thinking, limited=True, limit=limit) or "")
    assert ending(finished("stop"), thinking=False, limited=True, limit=limit) is None


@pytest.mark.parametrize("command", ["/file", "/load"])
def test_a_pipe_or_a_device_is_refused_since_it_may_never_end(talk, tmp_path, command):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, "/dev/zero"):
        assert "is no file but a pipe or a device" in talk.hear(f"{command} {path}")
    assert not talk.chat.attached


def test_a_file_longer_than_any_context_is_refused_unread(talk, tmp_path):
    long = tmp_path / "long"
    with long.open("wb") as file:
        file.truncate(2**40)
    assert "more than any context" in talk.hear(f"/file {long}")
