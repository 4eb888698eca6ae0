"""What `generate` and every error write to a terminal: whole words, and nothing that steers it."""

import os
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from dflash2_mlx.cli import out
from dflash2_mlx.cli.out import Out, fail

EVIL = "a\x1b]0;title\x07b\x1b[2Jc\x9bd\u202ee"


class Tty:
    """A terminal of 20 columns."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.fixture
def terminal(monkeypatch):
    tty = Tty()
    monkeypatch.setattr(out, "sys", SimpleNamespace(stdout=tty, stderr=tty))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(out.shutil, "get_terminal_size", lambda: os.terminal_size((21, 24)))
    return tty


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_lines_break_between_words_however_the_text_comes(terminal, size):
    text = "I started with random numbers, and 漢字かな交じり文が続く。\n\n  indented averyverylongwordforit\tx"
    stream = Out()
    for start in range(0, len(text), size):
        stream.answer(text[start : start + size])
    stream.end_line()
    lines = terminal.text.split("\n")
    assert lines[:2] == ["I started with", "random numbers, and"] and all(cell_len(line) <= 20 for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert lines[lines.index("") + 1].startswith("  indented")


def test_a_word_that_is_whole_is_written_at_once(terminal):
    stream = Out()
    stream.answer("one two")
    assert terminal.text == "one"
    stream.answer(" thr")
    assert terminal.text == "one two"
    stream.note("done")
    assert terminal.text == "one two thr\ndone\n"


def test_nothing_from_outside_steers_a_terminal(terminal):
    stream = Out()
    stream.answer(EVIL)
    stream.reasoning(EVIL)
    stream.note(EVIL)
    stream.document(EVIL)
    fail(EVIL)
    assert not [c for c in terminal.text if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]


def test_a_pipe_gets_the_answer_exactly(capsys):
    stream, text = Out(), f"{EVIL} and a line that is longer than any terminal " * 9
    stream.answer(text)
    stream.end_line()
    stream.document(EVIL)
    assert capsys.readouterr().out == f"{text}\n{EVIL}\n"


def test_an_error_that_names_a_tensor_steers_no_terminal(cli):
    outcome = cli("generate", "hello", "-m", "/nowhere/\x1b]0;owned\x07")
    assert outcome.code and "\x1b" not in outcome.err and "owned" in outcome.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("chat", "-t", "hot"), "--temperature is 'hot', not a number. Type: dflash2-mlx chat -h"),
        (("generate", "-n", "5.5", "x"), "--max-tokens is '5.5', not a whole number. Type: dflash2-mlx generate -h"),
        (("generat",), "no such command 'generat'. Did you mean 'generate'? Type: dflash2-mlx -h"),
        (("chat", "--nosuch\x1b[2J"), "no such option: --nosuch"),
    ],
)
def test_misused_words_are_one_line(cli, words, said):
    outcome = cli(*words)
    assert outcome.code == 2 and outcome.err.startswith(f"dflash2-mlx: {said}") and "\x1b" not in outcome.err
    assert outcome.err.count("\n") == 1


def test_commands_have_the_names_of_other_programs(cli):
    assert cli("ls").out == cli("list").out == cli("models").out != ""
    assert cli("run", "--nosuch").code == 2 and "run -h" in cli("run", "--nosuch").err
    assert "--install-completion" in cli("--help").out
