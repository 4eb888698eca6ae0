"""Long pastes stand as marks in the line, and come out whole."""

import pytest

from dflash2_mlx.chat.pastes import Pastes

LONG = "x" * 5000


def typed(pastes: Pastes, *pieces: str) -> str:
    """The line after the pieces were pasted one behind the other."""
    line = ""
    for piece in pieces:
        removed, text = pastes.insert(line, piece)
        line = line[: len(line) - removed] + text
    return line


def test_a_short_paste_is_seen_as_it_is():
    assert typed(Pastes(), "one\r\ntwo\rthree") == "one\ntwo\nthree"


@pytest.mark.parametrize("text", [LONG, "line\n" * 30])
def test_a_long_paste_is_a_mark_and_expands_to_itself(text):
    pastes = Pastes()
    line = f"before {typed(pastes, text)} after"
    assert len(line) < 60 and pastes.expand(line) == f"before {text} after"


@pytest.mark.parametrize("size", [32, 500, 1024, 3000])
def test_a_paste_in_pieces_is_one_mark(size):
    pastes = Pastes()
    text = "".join(str(number) for number in range(30_000))
    line = typed(pastes, *(text[start : start + size] for start in range(0, len(text), size)))
    assert line.count("[pasted") == 1 and len(line) < 60 and pastes.expand(line) == text


def test_a_mark_that_was_typed_by_hand_stays_text():
    pastes = Pastes()
    typed(pastes, LONG)
    assert pastes.expand("[pasted #1: 3 characters] [pasted #7: 5000 characters]").startswith("[pasted #1: 3 ")
