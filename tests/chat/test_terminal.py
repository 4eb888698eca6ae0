"""The chat in a real terminal: every key and signal, what is on the screen, what is left behind."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from folders import write_target
from terminals import Terminal

SHORT, LONG = "Who are you?", "Tell me a story about a fox."
slow = pytest.mark.slow
SGR = re.compile(rb"\x1b\[([0-9;]*)m")


@pytest.fixture
def home(tmp_path):
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def chat(home):
    with Terminal(environment=home) as terminal:
        terminal.ready()
        yield terminal


def modes(terminal):
    return termios.tcgetattr(terminal.process.child_fd)


@slow
def test_a_question_is_answered_with_its_numbers_and_ctrl_d_leaves(chat):
    chat.enter(SHORT)
    chat.see("tokens per round")
    chat.ready(2)
    assert "The dflash2-mlx project made me" in chat.shown and "first token" in chat.shown
    chat.type("\x04")
    assert chat.exit_code() == 0
    assert modes(chat)[3] & termios.ECHO  # the terminal echoes again


@slow
def test_ctrl_c_stops_the_answer_and_the_part_stays(chat):
    chat.enter("/think off")
    chat.ready(2)
    chat.enter(LONG)
    chat.see("fox named")
    started = time.monotonic()
    chat.type("\x03")
    chat.see("Stopped. The part so far stays")
    assert time.monotonic() - started < 2
    chat.ready(3)
    chat.enter("/tokens")
    chat.see("1 turn, ")
    chat.ready(4)
    chat.enter(SHORT)
    chat.see("tokens per round")


@slow
def test_ctrl_c_twice_fast_while_answering_only_stops_the_answer(chat):
    chat.enter(LONG)
    chat.see("│")
    chat.type("\x03\x03")
    chat.see("Stopped")
    chat.until(lambda: chat.prompts == 2)
    chat.drain(0.3)
    assert chat.process.isalive()


@slow
def test_ctrl_c_at_an_empty_prompt_hints_and_leaves_when_it_comes_again(chat):
    chat.type("\x03")
    chat.see("Ctrl-C again leaves")
    chat.ready(2)
    chat.type("\x03")
    assert chat.exit_code() == 0


@slow
def test_ctrl_c_empties_a_half_typed_line(chat):
    chat.type("half a line")
    chat.see("half a line")
    chat.type("\x03")
    chat.until(lambda: "half a line" not in chat.shown)
    chat.type("\x03")
    chat.see("Ctrl-C again leaves")
    chat.ready(2)
    chat.type("x")
    chat.see("› x")
    chat.type("\x03")
    chat.until(lambda: "› x" not in chat.shown)
    chat.type("\x03")
    chat.drain(0.3)
    assert chat.process.isalive()  # something was typed in between: only a hint again


@slow
@pytest.mark.parametrize("delay", [0.3, 0.7, 1.1])
def test_ctrl_c_during_loading_leaves_cleanly(home, delay):
    with Terminal(environment=home) as terminal:
        time.sleep(delay)
        terminal.type("\x03")
        code = terminal.exit_code()
        assert "Traceback" not in terminal.shown
        assert code == 130 or terminal.prompts  # a fast machine was ready before


@slow
def test_sigterm_during_loading_restores_the_terminal(home):
    with Terminal(environment=home) as terminal:
        before = modes(terminal)
        terminal.see("loading demo")
        os.kill(terminal.process.pid, signal.SIGTERM)
        assert terminal.exit_code() == 143 and modes(terminal)[3] == before[3]


@slow
@pytest.mark.parametrize("moment", ["prompt", "answer"])
def test_sigterm_restores_the_terminal(chat, moment):
    if moment == "answer":
        chat.enter(LONG)
        chat.see("│")
    os.kill(chat.process.pid, signal.SIGTERM)
    assert chat.exit_code() == 143
    after = modes(chat)
    assert after[3] & termios.ECHO and after[3] & termios.ICANON and after[3] & termios.ISIG
    assert b"\x1b[?25h" in chat.raw and chat.raw.rstrip().endswith(b"\x1b[?2004l")


@slow
def test_a_paste_of_several_lines_is_one_message(chat):
    chat.type("\x1b[200~one\ntwo\nWho are you?\x1b[201~")
    chat.see("Who are you?")
    assert chat.prompts == 1
    chat.type("\r")
    chat.ready(2)
    chat.enter("/tokens")
    chat.see("1 turn, ")


@slow
@pytest.mark.parametrize("newline", ["\x1b\r", "\\\r"])
def test_alt_enter_or_a_backslash_begins_a_new_line(chat, newline):
    chat.type("first" + newline)
    chat.type("second")
    chat.see("second")
    assert "› first\n· second" in chat.shown and "\\" not in chat.shown
    chat.type("\r")
    chat.ready(2)


@slow
def test_arrows_edit_and_history_comes_back_in_the_next_chat(home):
    with Terminal(environment=home) as terminal:
        terminal.ready()
        terminal.enter("/seed 12")
        terminal.see("has seed 12")
        terminal.type("ac\x1b[Db\x1b[C!")
        terminal.see("› abc!")
        terminal.type("\x03\x04")
        assert terminal.exit_code() == 0
    with Terminal(environment=home) as terminal:
        terminal.ready()
        terminal.type("\x1b[A")
        terminal.see("› /seed 12")
        terminal.type("\x03")
        terminal.until(lambda: "seed" not in terminal.shown)
        terminal.type("\x12see")
        terminal.see("› /seed 12")
        terminal.type("\r")
        terminal.until(lambda: "search" not in terminal.shown)
        terminal.type("\r")
        terminal.see("has seed 12")
    path = Path(home["XDG_STATE_HOME"]) / "dflash2-mlx" / "chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@slow
def test_no_history_writes_nothing(home):
    with Terminal("chat", "--model", "demo", "--no-history", environment=home) as terminal:
        terminal.ready()
        terminal.enter("/tokens")
        terminal.see("nothing was said yet")
        terminal.type("\x1b[A")
        terminal.until(lambda: terminal.shown.endswith("› /tokens"), "the history of this chat")
    assert not Path(home["XDG_STATE_HOME"]).exists()


@slow
def test_an_unwritable_home_is_told_once_and_the_chat_works(tmp_path):
    (tmp_path / "file").write_text("")
    with Terminal(environment={"HOME": str(tmp_path / "file"), "XDG_STATE_HOME": ""}) as terminal:
        terminal.ready()
        terminal.enter("/seed 1")
        terminal.see("has seed 1")
        terminal.ready(2)
        terminal.enter("/seed 2")
        terminal.see("has seed 2")
        terminal.ready(3)
        assert " ".join(terminal.everything).count("is not remembered") == 1


@slow
def test_a_line_of_100_000_characters_stays_quick(chat):
    started = time.monotonic()
    chat.type("x" * 100_000)
    chat.see("characters]")
    chat.until(lambda: "100000 characters" in chat.shown, "100000 characters")
    chat.type(" end")
    chat.see("] end")
    assert time.monotonic() - started < 10
    chat.type("\r")
    chat.see("prompt is too long")
    chat.see("maximum")


@slow
def test_emoji_and_cjk_are_typed_and_answered(chat):
    chat.enter("/think off")
    chat.ready(2)
    chat.type("漢字👍é")
    chat.see("é")
    chat.type("\x03")
    chat.enter("Say hello in Japanese.")
    chat.until(lambda: "こ" in chat.shown and "�" not in chat.shown)


@slow
def test_tab_completes_commands_and_files(chat, tmp_path):
    chat.type("/ex")
    chat.see("/export")
    chat.type("\t")
    chat.see("› /ex")
    chat.type("\x03")
    (tmp_path / "notes.txt").write_text("remember the milk")
    chat.type(f"/file {tmp_path}/no")
    chat.see("notes.txt")
    chat.type("\t")
    chat.until(lambda: f"{tmp_path}/notes.txt" in "".join(chat.shown.replace("·", "").split()), "the whole name")
    chat.type("\r")
    chat.until(lambda: "17 characters" in chat.shown.replace("\n", " "), "the size of the file")


@slow
def test_an_unknown_command_names_the_nearest(chat):
    chat.enter("/rety")
    chat.see("Did you mean /retry?")


@slow
def test_what_is_typed_during_an_answer_is_unseen_and_waits_for_the_prompt(chat):
    chat.enter(LONG)
    chat.see("│")
    chat.type("/seed 5\r/seed 6")
    chat.see("tokens per round")
    assert "/seed 5" not in chat.shown.split("tokens per round")[0]
    chat.see("has seed 5")
    chat.see("› /seed 6")


@slow
@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}])
def test_accepted_tokens_are_marked(home, environment):
    with Terminal(environment={**home, **environment}) as terminal:
        terminal.ready()
        terminal.enter("/think off")
        terminal.ready(2)
        terminal.enter("/accepted")
        terminal.see("drafted and accepted")
        terminal.enter(SHORT)
        terminal.see("tokens per round")
        cells = [terminal.cell("I am the demo model", word) for word in ("I", "demo", "model")]
        marked = [cell.underscore if environment else cell.fg == "green" for cell in cells]
        assert marked[0] is False and any(marked)  # the first token needs no draft


@slow
def test_no_colour_means_no_colour(home):
    with Terminal(environment={**home, "NO_COLOR": "1"}) as terminal:
        terminal.ready()
        terminal.enter("Write a Python function that reverses a string.")
        terminal.ready(2)
        terminal.type("\x04")
        assert terminal.exit_code() == 0
        codes = {int(code or 0) for found in SGR.findall(terminal.raw) for code in found.split(b";")}
        assert not {code for code in codes if (30 <= code <= 48 and code != 39) or 90 <= code <= 107}


@slow
@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_dumb_terminal_gets_no_control_sequence(home, environment):
    with Terminal(environment={**home, **environment}) as terminal:
        terminal.ready()
        terminal.type(SHORT + "\n")
        terminal.see("tokens per round")
        terminal.type("\x03")
        terminal.see("Ctrl-C again leaves")
        terminal.type("\x04")
        assert terminal.exit_code() == 0
        assert b"\x1b" not in terminal.raw and "project made me" in terminal.shown


@slow
def test_a_c_locale_gets_plain_symbols(home):
    with Terminal(environment={**home, "LC_ALL": "C"}) as terminal:
        terminal.ready()
        terminal.enter(SHORT)
        terminal.see("tokens per round")
        assert terminal.shown.isascii() and "> Who are you?" in terminal.shown


@slow
def test_forty_columns_are_enough(home):
    with Terminal(environment=home, columns=40, rows=20) as terminal:
        terminal.ready()
        terminal.enter(SHORT)
        terminal.see("first token")
        terminal.ready(2)
        words = " ".join(" ".join(terminal.everything).split())
        assert "I was trained from scratch, starting with random numbers" in words
        assert words.count("trained from scratch") == 1


@slow
@pytest.mark.parametrize("size", [(60, 20), (120, 40), (40, 8)])
def test_a_resize_while_streaming_loses_and_repeats_nothing(chat, size):
    chat.enter("/think off")
    chat.ready(2)
    chat.enter(LONG)
    chat.see("fox named")
    chat.resize(*size)
    chat.until(lambda: "tokens per round" in " ".join(chat.everything))
    chat.until(lambda: re.search(r"first token [^›]*\n\n›$", chat.shown) is not None)
    words = " ".join(" ".join(chat.everything).split())
    assert words.count("fox named") <= 1  # a smaller terminal may lose its first lines
    assert words.count("hear the snowy pass sing") == 1
    chat.enter("/tokens")
    chat.until(lambda: "are left" in " ".join(chat.everything))


@slow
def test_a_block_taller_than_the_screen_is_printed_once(home):
    with Terminal(environment=home, columns=40, rows=6) as terminal:
        terminal.until(lambda: terminal.prompts == 1)
        terminal.enter("/think off")
        terminal.until(lambda: terminal.prompts == 2)
        terminal.enter(LONG)
        terminal.until(lambda: any("first token" in line for line in terminal.everything))
        lines = [line for line in terminal.everything if len(line) > 12 and line[:1] != "›"]
        assert len(lines) == len(set(lines)) and len(lines) > 6


@slow
def test_a_failed_turn_leaves_the_message_in_the_prompt(home):
    with Terminal("chat", "--model", "demo", "-t", "0", environment=home) as terminal:
        terminal.ready()
        terminal.enter("/system " + "word " * 300)
        terminal.see("System message")
        terminal.enter("/set max_tokens=0")
        terminal.see("max_tokens=0")
        terminal.type("\x1b[200~" + "many words " * 20_000 + "\x1b[201~")
        terminal.see("characters]")
        terminal.type("\r")
        terminal.see("prompt is too long")
        terminal.until(lambda: terminal.shown.split("\n")[-1].startswith("› [pasted #"))
        terminal.type("\x03")
        terminal.enter("/tokens")
        terminal.see("nothing was said yet")


@slow
def test_a_target_without_a_chat_template_is_refused_with_a_hint(tmp_path, home):
    target = write_target(tmp_path / "target")
    config = target / "tokenizer_config.json"
    content = json.loads(config.read_text())
    content.pop("chat_template", None)
    config.write_text(json.dumps(content))
    (target / "chat_template.jinja").unlink(missing_ok=True)
    with Terminal("chat", "--model", str(target), environment=home) as terminal:
        assert terminal.exit_code() == 1
        assert "generate" in " ".join(terminal.everything) and "--raw" in " ".join(terminal.everything)


@slow
def test_pipes_that_are_closed_end_the_chat_quietly(home):
    command = f"'{sys.executable}' -m dflash2_mlx chat --model demo -t 0"
    environment = {**os.environ, **home, "PYTHONPATH": str(Path(__file__).parents[2])}
    for shell, out in ((f"{command} <&-", ""), (f"yes 'Who are you?' | {command} | head -c 8", "The dfla")):
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=environment, timeout=60)
        assert done.stdout == out and "Traceback" not in done.stderr
