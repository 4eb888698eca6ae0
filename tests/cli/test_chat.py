"""`dflash2-mlx chat` in a pipe, over a tiny random pair: every line a turn, stdout the answers alone."""

import json

import pytest

from dflash2_mlx.chat.conversation import Conversation, Turn
from dflash2_mlx.chat.history import keep, last_chat_path

GREEDY = ("--max-tokens", 12, "--temperature", 0)


def talk(pair, *args):
    return ("chat", "--model", pair[0], "--draft", pair[1], *GREEDY, *args)


def test_every_line_is_a_turn_and_stdout_has_the_answers_alone(cli, stored, tmp_path):
    path = tmp_path / "talk.json"
    outcome = cli(*talk(stored, "--system", "Be kind."), stdin=f"hello\n\nagain\n/save {path}\n".encode())
    messages = json.loads(path.read_text())["messages"]
    assert outcome.code == 0 and "\x1b" not in outcome.out + outcome.err
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    shown = (m["content"] for m in messages[2::2])
    assert outcome.out == "".join(text if text.endswith("\n") else text + "\n" for text in shown if text)
    assert "Saved 2 turns" in outcome.err


def test_an_answer_equals_that_of_generate(cli, stored):
    chat = cli(*talk(stored), stdin=b"hello\n")
    assert chat.out == cli("generate", "hello", "-m", stored[0], "--draft", stored[1], *GREEDY).out


def test_a_cut_answer_says_so_on_stderr(cli, stored):
    assert "cut at 12 tokens" in cli(*talk(stored), stdin=b"hello\n").err


@pytest.mark.parametrize(
    ("stdin", "code", "words"),
    [
        (b"", 0, ""),
        (b"/quit\nhello\n", 0, ""),
        (b"/nope\n", 2, "there is no command /nope"),
        (b"caf\xe9\n", 1, "line 1 is not UTF-8"),
        (b"x" * 5000 + b"\n", 1, "prompt is too long"),
    ],
)
def test_the_exit_code_tells_whether_all_lines_were_done(cli, stored, stdin, code, words):
    outcome = cli(*talk(stored), stdin=stdin)
    assert outcome.code == code and words in outcome.err and not outcome.out


@pytest.mark.parametrize(
    "option",
    [("--reasoning", "enormous"), ("--block-size", 9), ("--top-p", 2), ("--require-draft", "--block-size", 1)],
)
def test_what_cannot_be_honoured_is_refused_before_the_chat(cli, stored, option):
    outcome = cli(*talk(stored, *option), stdin=b"hello\n")
    assert outcome.code == 2 and outcome.err.startswith("dflash2-mlx: ") and not outcome.out


def test_plain_decoding_is_said_with_its_reason(cli, stored):
    outcome = cli("chat", "-m", stored[0], "--no-draft", *GREEDY, stdin=b"hello\n")
    assert "drafting is off: switched off (--no-draft)" in outcome.err


def test_the_known_pairs_can_be_asked_for(cli, stored):
    outcome = cli(*talk(stored), stdin=b"/models\n")
    assert outcome.code == 0 and "qwen3.8-27b" in outcome.err and not outcome.out


def test_a_model_is_named_once(cli, stored):
    outcome = cli("chat", "demo", "--model", stored[0])
    assert outcome.code == 2 and "given twice" in outcome.err


def test_there_must_be_a_last_conversation_to_go_on_with(cli, stored, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    outcome = cli(*talk(stored, "--continue"), stdin=b"hello\n")
    assert outcome.code == 2 and "there is no last conversation" in outcome.err and not list(tmp_path.iterdir())


def test_the_last_conversation_goes_on_under_the_system_message_that_is_given(cli, stored, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    keep(Conversation("Be kind.", [Turn("hello", "yes")]), last_chat_path({"XDG_STATE_HOME": str(tmp_path)}), "demo")
    outcome = cli(*talk(stored, "--continue", "--system", "Be brief."), stdin=f"/save {tmp_path}/both.json\n".encode())
    messages = json.loads((tmp_path / "both.json").read_text())["messages"]
    assert outcome.code == 0 and [m["content"] for m in messages] == ["Be brief.", "hello", "yes"]
