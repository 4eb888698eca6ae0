"""Markdown while it is written: however the text comes in pieces, the lines are the same, and each comes once."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from dflash2_mlx.chat.blocks import Marks
from dflash2_mlx.chat.layout import Flow
from dflash2_mlx.chat.look import THEME
from dflash2_mlx.chat.markdown import MarkdownStream

LIMIT = 400  # characters: an open mark is waited for no longer
CONSOLE = Console(theme=THEME)
MARKS = (
    "===\n",
    "- [ ] ",
    "    code\n",
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
    "\u2028",
    "\x0c",
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
@example("- - - ```\n      wide code", 12)
def test_no_line_is_wider_than_the_terminal(text, width):
    stream = MarkdownStream(width)
    for character in text:
        assert all(line.cell_len <= width for line in [*stream.push(character), *stream.open()])


@given(st.text(alphabet="ab \n漢é", max_size=300), WIDTHS)
def test_plain_text_loses_no_character(text, width):
    flow = Flow(width)
    lines = flow.push(Text(text)) + flow.finish()
    assert "".join("".join(line.plain for line in lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("**bold** and *it* and `a*b`", "bold and it and a*b"),
        ("2**8, a*b*c, snake_case_name, a__b", "2**8, a*b*c, snake_case_name, a__b"),
        ("__bold__ and _it_", "bold and it"),
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


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("    for *args in x*y*z:\n        f(`_a_`)", ["  for *args in x*y*z:", "      f(`_a_`)"]),
        ("**bold\nover** lines", ["bold", "over lines"]),
        ("[w](https://x.org/A_(b)_c)", ["w (https://x.org/A_(b)_c)"]),
        ('[name](https://x.org "Its title")', ["name (https://x.org)"]),
        ("![a *fox*](fox.png) ![](u)", ["[image: a fox] (fox.png) [image] (u)"]),
        ("<https://x.org> [https://x.org](https://x.org)", ["https://x.org https://x.org"]),
        ("a | b\n--|--\n1 | 2\n", ["a   b", "─────", "1   2"]),
        ("Title\n=====\nSub\n---\ntext", ["Title", "", "Sub", "text"]),
        ("&lt;a&gt; &amp;amp; &copy; &#8364;", ["<a> &amp; © €"]),
        ("<b>not</b> HTML", ["<b>not</b> HTML"]),
        ("> ```py\n> x = *a*\n> ```\n> end", ["│   x = *a*", "│", "│ end"]),
        ("- run:\n  ```sh\n  ls\n    -l\n  ```\n- next", ["• run:", "", "    ls", "      -l", "", "• next"]),
        ("1. one\n   - a\n     - b\n2. two", ["1. one", "   • a", "     • b", "2. two"]),
        ("- a\n\n  more\n\n- b", ["• a", "", "  more", "", "• b"]),
        ("- [ ] todo\n- [x] done\n1. [X] both\n\n[x] text", ["☐ todo", "☑ done", "1. ☑ both", "", "[x] text"]),
        ("|a|b|\n|-|-|\n|`x|y`|z \\| z|\n", ["a     b", "───────────", "x|y   z | z"]),
        ("|a|\n|-|\n|one<br>two|\n", ["a", "───", "one", "two"]),
        ("> - q\n>   - r\n>\n> > s", ["│ • q", "│   • r", "│", "│ │ s"]),
        ("````\n```\nx\n```\n````\n~~~\ny", ["  ```", "  x", "  ```", "", "  y"]),
        ("[1]: https://x.org\n[a][1]", ["[1]: https://x.org", "[a][1]"]),
        ("two  \nlines\\\nthree", ["two", "lines", "three"]),
        ("7. seven\n\n- \n-", ["7. seven", "", "•", "•"]),
        ("### A `b` *c*\ntext\n***\nx", ["A b c", "text", "", "─" * 40, "", "x"]),
    ],
)
def test_what_models_write(source, lines):
    assert [line.rstrip() for line in plain(source)] == lines


def test_the_styles_of_blocks_and_marks():
    stream = MarkdownStream(60)
    text = Text("\n").join(stream.push("# Big\n\n> **b** `c` [l](u)\n") + stream.finish())
    styles = {
        word: str(text.get_style_at_offset(CONSOLE, text.plain.index(word))) for word in ("Big", "b ", "c ", "l ")
    }
    assert styles["Big"] == "bold underline" and styles["b "] == "bold italic"
    assert "magenta" in styles["c "] and "underline" in styles["l "]


def test_links_are_followed_where_the_terminal_can():
    stream = MarkdownStream(60, Marks(hyperlinks=True))
    (line,) = [*stream.push("see [here](https://x.org/a_b)"), *stream.finish()]
    assert line.plain == "see here" and line.get_style_at_offset(CONSOLE, 4).link == "https://x.org/a_b"


def test_a_finished_block_and_item_come_out_at_once():
    stream = MarkdownStream(40)
    assert [line.plain for line in stream.push("one\n\n- two\n- thr")] == ["one"]
    assert [line.plain for line in stream.push("ee\n- four\n")] == ["", "• two", "• three"]


def test_a_long_answer_is_read_once():
    stream = MarkdownStream(40)
    stream.push("- an item\n" * 300 + "\n" + "words and words " * 300 + "\n\n```\n" + "code\n" * 300)
    assert len(stream._source) < 1000


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


@pytest.mark.parametrize("size", [1000, 7])
@pytest.mark.parametrize("width", [20, 79])
def test_every_word_of_a_long_answer_comes_out_once(size, width):
    numbers = iter(range(10_000))

    def words(count):
        return " ".join(f"w{next(numbers)}w" for _ in range(count))

    text = (
        f"{words(99)}\n\n**{words(40)}** *{words(70)}* `{words(3)}`\n{words(30)}\n\n- {words(90)}\n\n  {words(90)}\n"
        f"  1. {words(60)}\n- {words(2)}\n\n> {words(99)}\n> {words(3)}\n\n# {words(9)}\n{words(3)}\n---\n"
        + f"```py\n{words(12)}\n"
        + "".join(f"{words(2)}\n" for _ in range(150))
        + f"```\n{words(3)}"
    )
    stream, lines = MarkdownStream(width), []
    for start in range(0, len(text), size):
        lines += stream.push(text[start : start + size])
    shown = re.sub(r"[\s│]", "", "".join(line.plain for line in [*lines, *stream.finish()]))
    assert re.findall(r"w\d+w", shown) == [f"w{number}w" for number in range(next(numbers))]
