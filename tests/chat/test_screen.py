"""What a terminal shows after the view drew an answer: every line once, however small the terminal is."""

import io
import os
import re
from dataclasses import replace

import pyte
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from dflash2_mlx.chat.look import Look, look_of
from dflash2_mlx.chat.markdown import MarkdownStream
from dflash2_mlx.chat.screen import Screen
from dflash2_mlx.chat.view import PlainView, ScreenView, ViewOptions
from dflash2_mlx.events import Delta, Prefilling, Round
from dflash2_mlx.text.printable import printable

LOOK = Look(live=True, colour=True, unicode=True)
TABLE = "| a | b |\n|---|---|\n" + "".join(f"| {n} | {n * n} |\n" for n in range(30))
CODE = "```python\n" + "".join(f"line_{n} = {n}\n" for n in range(60)) + "```\n"
PROSE = " ".join(f"word{n}" for n in range(150))
EVERYTHING = f"# Head\n\n{PROSE}\n\n- one **two** three\n\n{TABLE}\n{CODE}\nend"
ANSWERS = (PROSE, CODE, TABLE, EVERYTHING, "漢字かな交じり文、" * 40)


class Emulator:
    """A terminal emulator that the screen writes to."""

    def __init__(self, columns: int = 40, rows: int = 8) -> None:
        self.written = io.StringIO()
        self._screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream = pyte.Stream(self._screen)
        self._size = os.terminal_size((columns, rows))
        self.screen = Screen(self, LOOK, lambda: self._size)

    def write(self, text: str) -> None:
        self.written.write(text)
        self._stream.feed(text.replace("\n", "\r\n"))

    def flush(self) -> None:
        pass

    def resize(self, columns: int, rows: int) -> None:
        self._size = os.terminal_size((columns, rows))
        self._screen.resize(rows, columns)

    @property
    def lines(self) -> list[str]:
        columns = range(self._screen.columns)
        above = ["".join(row[n].data for n in columns) for row in self._screen.history.top]
        text = "\n".join(line.rstrip() for line in (*above, *self._screen.display))
        return text.rstrip().split("\n")


@pytest.mark.parametrize(
    "answer", ["one\ttwo\tthree\tfour", "|漢字漢字漢字漢字漢字漢字漢字", "| a\tb | c\td\te |\n|---|\n"]
)
def test_no_line_on_screen_is_wider_than_it_was_laid_out(answer):
    """A wider one would wrap, and what is redrawn below it would land in the wrong row."""
    stream = MarkdownStream(20)
    lines = [line for piece in answer for line in (*stream.push(piece), *stream.open())] + stream.finish()
    assert lines and all(line.cell_len <= 20 and "\t" not in line.plain for line in lines)


def test_talk_does_not_steer_the_terminal_either():
    emulator = Emulator()
    emulator.screen.say("a file's \x1b[2Jtext\x9b2J\x07")
    assert emulator.lines == ["a file's \ufffd[2Jtext\ufffd2J\ufffd"]


def drawn(answer: str, size: int, emulator: Emulator) -> list[str]:
    """The terminal's lines after `answer` came in pieces of `size` characters, each of them drawn."""
    time = iter(range(10**9))
    view = ScreenView(emulator.screen, ViewOptions(), clock=lambda: float(next(time)))
    for start in range(0, len(answer), size):
        view.delta(Delta("answer", answer[start : start + size]))
    view.finish()
    return emulator.lines


def expected(answer: str, width: int) -> list[str]:
    stream = MarkdownStream(width)
    return "\n".join(line.plain.rstrip() for line in stream.push(answer) + stream.finish()).split("\n")


@pytest.mark.slow
@pytest.mark.parametrize("answer", ANSWERS, ids=["prose", "code", "table", "all", "cjk"])
@pytest.mark.parametrize("rows", [3, 8, 40])
def test_every_line_is_on_the_terminal_once(answer, rows):
    lines = drawn(answer, 7, Emulator(40, rows))
    assert lines == expected(answer, 39)


@pytest.mark.slow
@settings(deadline=None, max_examples=15, phases=[Phase.generate])
@given(st.sampled_from(ANSWERS), st.integers(1, 60), st.integers(2, 30), st.integers(20, 100))
def test_any_size_of_pieces_and_terminal_shows_the_same(answer, size, rows, columns):
    assert drawn(answer, size, Emulator(columns, rows)) == expected(answer, columns - 1)


def test_long_code_is_written_about_once():
    emulator = Emulator()
    drawn("```\n" + "some text in a line\n" * 300 + "```", 3, emulator)
    written = len(emulator.written.getvalue())
    assert written < 3 * 300 * len("  some text in a line\r\n")


def test_what_did_not_change_is_not_written_again():
    emulator = Emulator(80, 24)
    view = ScreenView(emulator.screen, ViewOptions(), clock=iter(range(1, 100)).__next__)
    view.delta(Delta("answer", "one two "))
    before = len(emulator.written.getvalue())
    view.delta(Delta("answer", "three"))
    assert emulator.written.getvalue()[before:] == " three"


def test_hidden_thinking_leaves_one_line():
    emulator = Emulator(80, 24)
    time = iter(range(100))
    view = ScreenView(emulator.screen, ViewOptions(thinking=False), clock=lambda: float(next(time)))
    view.prefilling(Prefilling(10, 100))
    assert emulator.lines == ["⠋ reading 10 of 100 tokens, 1 s"]
    for _ in range(3):
        view.round(Round((1, 2), 4, 1))
        view.delta(Delta("reasoning", "hm, hm\n"))
        assert emulator.lines[0].startswith("thinking, ")
    view.round(Round((3,), 4, 0))
    view.delta(Delta("answer", "yes"))
    view.finish()
    assert len(emulator.lines) == 3 and emulator.lines[0].startswith("thought for") and emulator.lines[2] == "yes"
    assert "7 tokens" in emulator.lines[0]


def test_what_we_say_about_an_answer_fits_a_narrow_terminal():
    emulator = Emulator(24, 24)
    view = ScreenView(emulator.screen, ViewOptions(thinking=False), clock=iter(map(float, range(100))).__next__)
    view.prefilling(Prefilling(1000, 10_000))
    view.round(Round((1, 2), 4, 1))
    view.delta(Delta("reasoning", "hm"))
    view.delta(Delta("answer", "yes"))
    view.finish()
    written = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", emulator.written.getvalue())
    assert max(map(cell_len, re.split(r"[\r\n]", written))) <= 23 and "(/think" in written


@pytest.mark.parametrize("answer", ANSWERS[:2], ids=["prose", "code"])
@pytest.mark.parametrize("columns", [70, 100])
def test_after_a_resize_every_word_is_there_once(answer, columns):
    emulator = Emulator(50, 100)
    time = iter(range(10**6))
    view = ScreenView(emulator.screen, ViewOptions(), clock=lambda: float(next(time)))
    for number, start in enumerate(range(0, len(answer), 5)):
        if number == 40:
            emulator.resize(columns, 100)
        view.delta(Delta("answer", answer[start : start + 5]))
    view.finish()
    text = "".join("".join(emulator.lines).split())
    assert text == "".join("".join(expected(answer, 49)).split())


def test_a_model_cannot_steer_the_terminal():
    assert printable("a\x1b[2Jb\x07\x9bc\r\n\td") == "a\ufffd[2Jb\ufffd\ufffdc\n\td"


def test_pipes_get_the_answer_as_it_is_and_thinking_apart():
    out, talk = io.StringIO(), io.StringIO()
    view = PlainView(out, talk, thinking=True)
    for delta in (Delta("reasoning", "hm"), Delta("answer", "**a**\n"), Delta("answer", "b")):
        view.delta(delta)
    view.finish()
    assert (out.getvalue(), talk.getvalue()) == ("**a**\nb\n", "hm\n")


@pytest.mark.parametrize(
    ("environment", "colour", "unicode"),
    [
        ({"TERM": "xterm", "LANG": "en_US.UTF-8"}, True, True),
        ({"TERM": "xterm", "LC_ALL": "C", "LANG": "en_US.UTF-8"}, True, False),
        ({"TERM": "xterm", "LANG": "C.utf8", "NO_COLOR": "1"}, False, True),
    ],
)
def test_the_environment_decides_colours_and_symbols(environment, colour, unicode):
    class Tty(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    look = look_of(Tty(), Tty(), environment)
    assert (look.live, look.colour, look.unicode) == (True, colour, unicode)
    assert not look_of(io.StringIO(), Tty(), environment).live
    assert not look_of(Tty(), Tty(), {**environment, "TERM": "dumb"}).live


@pytest.mark.parametrize(
    ("environment", "follows"),
    [
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"TERM": "xterm-kitty"}, True),
        ({"VTE_VERSION": "7200"}, True),
        ({"VTE_VERSION": "4800"}, False),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/tmux"}, False),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({}, False),
    ],
)
def test_links_are_sent_to_terminals_that_are_known_to_follow_them(environment, follows):
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert look_of(Tty(), Tty(), {"TERM": "xterm", **environment}).hyperlinks == follows


def test_a_link_is_closed_and_its_address_steers_nothing():
    emulator = Emulator(12, 8)
    emulator.screen.look = replace(LOOK, hyperlinks=True)
    view = ScreenView(emulator.screen, ViewOptions(), clock=iter(map(float, range(100))).__next__)
    for piece in ("[two ", "words](https://x", ".org/\x1b]8;;evil) ", "end"):
        view.delta(Delta("answer", piece))
    view.finish()
    links = re.findall(r"\x1b\]8;;([\x21-\x7e]*)\x1b\\", emulator.written.getvalue())
    assert links[-2:] == ["https://x.org/%EF%BF%BD%5D8;;evil", ""] and links[1::2] == [""] * (len(links) // 2)
    assert emulator.written.getvalue().count("\x1b]") == len(links)
