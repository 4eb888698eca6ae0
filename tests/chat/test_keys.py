"""What is typed while an answer runs: Esc stops it, everything else waits for the prompt."""

import os

import pytest

from dflash2_mlx.chat import keys
from dflash2_mlx.chat.keys import Interrupts, Keyboard


@pytest.fixture
def typing(monkeypatch):
    """Types into a pipe that stands for the terminal."""
    reading, writing = os.pipe()
    monkeypatch.setattr(keys, "_STDIN", reading)
    yield lambda data: os.write(writing, data)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("typed", "presses", "left"),
    [
        (b"\x1b", 1, b""),
        (b"\x1b\x1b", 2, b""),
        (b"ab\x1b", 1, b"ab"),
        (b"\x1b[A\x1bOB\x1b\r", 0, b"\x1b[A\x1bOB\x1b\r"),  # arrows and Alt-Enter
        (b"\x1b[200~pasted\x1b[201~", 0, b"\x1b[200~pasted\x1b[201~"),
        ("é漢".encode(), 0, "é漢".encode()),
        (b"", 0, b""),
    ],
)
def test_only_esc_itself_stops_an_answer(typing, typed, presses, left):
    kept = bytearray()
    interrupts = Interrupts(kept)
    typing(typed)
    assert interrupts.pressed() == bool(presses) and interrupts.count == presses and bytes(kept) == left


def test_an_arrow_that_comes_in_two_pieces_is_an_arrow(typing, monkeypatch):
    interrupts, waits = Interrupts(bytearray()), keys._waiting
    typing(b"\x1b")

    def late(seconds):
        if seconds:  # it waits for what follows an Esc
            typing(b"[A")
        return waits(seconds)

    monkeypatch.setattr(keys, "_waiting", late)
    assert not interrupts.pressed()


def test_what_is_typed_is_handed_over_once():
    keyboard = Keyboard(live=False)
    keyboard._typed += b"next"
    assert keyboard.typed() == b"next" and keyboard.typed() == b""
