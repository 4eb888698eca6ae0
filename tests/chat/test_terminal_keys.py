"""Keys and options of the chat that need a real terminal, and for Ctrl-Z a shell with jobs."""

import sys
import time

import pexpect
import pytest

from terminals import ROOT, Terminal

LONG = "Tell me a story about a fox."
pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path):
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_esc_stops_an_answer_and_arrows_do_not(home):
    with Terminal(environment=home) as chat:
        chat.ready()
        chat.enter(LONG)
        chat.see("│")
        chat.type("\x1b[A\x1bOBab")
        chat.drain(0.3)
        assert "Stopped" not in chat.shown
        chat.type("\x1b")
        chat.see("Stopped. The part so far stays")
        chat.see("› ab")  # what was typed waits; the arrows had nowhere to go


def test_a_line_shows_the_time_before_the_first_token(home):
    with Terminal(environment=home) as chat:
        chat.ready()
        chat.type("\x1b[200~" + "many words " * 2000 + "\x1b[201~")
        chat.see("characters]")
        chat.type("\r")
        chat.until(lambda: any(line[:1] in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" and line.endswith(" s") for line in chat.lines if line))


def test_a_chat_goes_on_where_the_last_one_ended(home):
    words = ("chat", "--model", "demo", "-t", "0")
    with Terminal(*words, "--continue", environment=home) as chat:
        assert chat.exit_code() == 2 and "no last conversation" in chat.shown
    for option, said in (((), "1 turn, "), (("--continue",), "2 turns, ")):
        with Terminal(*words, *option, environment=home) as chat:
            chat.ready()
            assert ("the conversation goes on: 1 turn" in chat.shown) == bool(option)
            chat.enter("Who are you?")
            chat.see("tokens per round")
            chat.ready(2)
            chat.enter("/tokens")
            chat.see(said)
            chat.ready(3)
            chat.type("\x04")
            assert chat.exit_code() == 0


def test_ctrl_z_suspends_at_the_prompt_and_fg_comes_back(home):
    environment = {
        **home,
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
    }
    shell = pexpect.spawn(
        "bash", ["--norc", "--noprofile", "-i"], env=environment, dimensions=(24, 80), timeout=30, encoding="utf-8"
    )
    try:
        shell.sendline(f"PS1='shell> '; '{sys.executable}' -m dflash2_mlx chat --model demo -t 0")
        shell.expect("Ctrl-D leaves")
        shell.expect("›")
        time.sleep(0.3)
        shell.send("half a line\x1a")
        shell.expect("Stopped")
        shell.expect("shell> ")
        shell.sendline("echo in the $((40 + 2)) shell")
        shell.expect("in the 42 shell")
        shell.sendline("fg")
        shell.expect("half a line")
        shell.send("\x03/quit\r")
        shell.expect("shell> ")
        shell.sendline("echo code $?")
        shell.expect("code 0")
    finally:
        shell.close(force=True)
