"""Markdown while it is written: however the text comes in pieces, the lines are the same, and each comes once."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from dflash2_mlx.chat.inline import LIMIT
from dflash2_mlx.chat.look import THEME
from dflash2_mlx.chat.markdown import MarkdownStream, PlainStream

CONSOLE = Console(theme=THEME)
MARKS = (
    "# ",
    "## Head",
    "- ",
    "* item",
    "  - ",
    "1. ",
    "12) x",
    "> ",
    ">> ",
    "---",
    "***",
    "```",
    "```python\n",
    "~~~",
)
ROWS = ("\n", "\n\n", "| a | b |\n", "|---|--:|\n", "| **1** | `2` |\n", "|")
INLINE = ("**", "*", "_", "`", "``", "~~", "[", "](", ")", "[name](https://example.org)", "**bold**", "*it*", "`code`")
WORDS = (
    "word ",
    "a longer piece of text ",
    "漢字かな交じり文、",
    "👩‍👩‍👧",
    "é",
    "\u0301",
    "\t",
    "    ",
    "2**8",
    "a_b_c",
)
CODE = ("x = f(1)", '"""', "# no", "\\", "\\*")
PIECES = (*MARKS, *ROWS, *INLINE, *WORDS, *CODE)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)
WIDTHS = st.sampled_from([12, 20, 40, 79, 130])


def looks(line):
    """Every character with its style."""
    cells = [(character, str(segment.style or "")) for segment in line.render(CONSOLE) for character in segment.text]
    while cells and cells[-1][0] == " ":
        cells.pop()
    return cells


def plain(text, width=40):
    stream = MarkdownStream(width)
    return [line.plain for line in stream.push(text) + stream.finish()]


@settings(deadline=None)
@given(TEXTS, WIDTHS, st.lists(st.integers(1, 9), min_size=1))
def test_any_split_of_the_stream_gives_the_same_lines(text, width, sizes):
    whole = MarkdownStream(width)
    expected = [looks(line) for line in whole.push(text) + whole.finish()]
    stream, lines, start, number = MarkdownStream(width), [], 0, 0
    while start < len(text):
        end = start + sizes[number % len(sizes)]
        lines += stream.push(text[start:end])
        stream.open()
        start, number = end, number + 1
    lines += stream.finish()
    assert [looks(line) for line in lines] == expected


@settings(deadline=None)
@given(TEXTS, WIDTHS)
@example(">> >> >> ## Head", 12)
@example(20 * " " + "- item", 12)
def test_no_line_is_wider_than_the_terminal(text, width):
    stream = MarkdownStream(width)
    for character in text:
        assert all(line.cell_len <= width for line in [*stream.push(character), *stream.open()])


@given(st.text(alphabet="ab \n漢é", max_size=300), WIDTHS)
def test_plain_text_loses_no_character(text, width):
    stream = PlainStream(width)
    lines = stream.push(text) + stream.finish()
    assert "".join("".join(line.plain for line in lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("**bold** and *it* and `a*b`", "bold and it and a*b"),
        ("2**8, a*b*c, snake_case_name, __init__", "2**8, a*b*c, snake_case_name, __init__"),
        ("open **and never closed", "open **and never closed"),
        ("这是**重点**内容", "这是重点内容"),
        ("\\*not it\\* \\(math\\)", "*not it* \\(math\\)"),
        ("[here](https://example.org)", "here (https://example.org)"),
        ("[x] done, a[0](y)", "[x] done, a0 (y)"),
        ("``a ` b``", "a ` b"),
        ("~~gone~~ ~this~", "gone ~this~"),
        ("1.5 is no item", "1.5 is no item"),
        ("#hashtag", "#hashtag"),
    ],
)
def test_inline_marks(source, shown):
    assert plain(source, 100) == [shown]


def test_blocks_in_order_with_one_empty_line_between():
    source = "# Title\nText.\n- one\n- two\n\n\n\n```python\ndef f():\n\n    pass\n```\n> quoted\n---\nend\n\n"
    assert plain(source, 20) == [
        *("Title", "Text.", "• one", "• two", "", "  def f():", "  ", "      pass", ""),
        *("│ quoted", "", "─" * 20, "", "end"),
    ]  # fmt: skip


def test_items_and_quotes_hang():
    assert plain("- one two three four five\n> one two three four five", 16) == [
        *("• one two three", "  four five", "│ one two three", "│ four five")
    ]  # fmt: skip


def test_a_table_is_aligned_and_keeps_surplus_cells():
    lines = plain("| Name | N |\n|:--|--:|\n| a | 1 |\n| b | 22 | more |\nafter")
    assert lines[0].split() == ["Name", "N"] and lines[2].split() == ["a", "1"] and "more" in lines[3]
    assert lines[2].index("1") == lines[3].index("22") + 1 and lines[-1] == "after"


def test_rows_without_a_heading_are_text():
    assert plain("| no | table |\nnext") == ["| no | table |", "next"]


def test_an_open_mark_shows_its_style_before_it_is_closed():
    stream = MarkdownStream(40)
    stream.push("so **very bo")
    assert stream.open()[0].plain == "so very bo"
    stream.push("ld** it is")
    assert stream.open()[0].plain == "so very bold it is"


def test_a_mark_that_stays_open_holds_nothing_up_for_long():
    stream = MarkdownStream(40)
    lines = stream.push("**" + "word " * LIMIT)
    assert len(lines) > LIMIT * 4 / 40 and lines[0].plain.startswith("**word")


def test_code_lines_are_final_as_they_end():
    stream = MarkdownStream(40)
    assert [line.plain for line in stream.push("```\none\ntwo\nthr")] == ["  one", "  two"]
    assert [line.plain for line in stream.open()] == ["  thr"]


def test_an_endless_line_comes_out_while_it_grows():
    for opening in ("", "```\n"):
        stream = MarkdownStream(40)
        lines = stream.push(opening + "x" * 50_000)
        assert len(lines) > 1000 and len(stream.open()) < 60


def test_after_a_change_of_width_only_what_is_new_comes():
    for opening in ("", "- ", "```\n", "> "):
        stream = MarkdownStream(60)
        shown = [*stream.push(opening + "one two three "), *stream.open()]
        stream.leave(20)
        rest = [*stream.push("four five six seven eight"), *stream.finish()]
        letters = "".join("".join(line.plain for line in (*shown, *rest)).split())
        assert letters.strip("•│").replace("│", "") == "onetwothreefourfivesixseveneight"
        assert all(line.cell_len <= 20 for line in rest)
