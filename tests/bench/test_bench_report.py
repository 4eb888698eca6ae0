"""Reports as HTML, SVG, Markdown, CSV and on a terminal."""

import io
import re
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from dflash2_mlx.bench.numbers import spread
from dflash2_mlx.bench.page import page
from dflash2_mlx.bench.report import Chart, Ratio, Report, Section, Series, Share, Table
from dflash2_mlx.bench.svg import NARROW, STYLE, WIDE, draw, span, ticks
from dflash2_mlx.bench.terminal import show
from dflash2_mlx.bench.writers import csv_text, markdown, write_report

BARS = Chart(
    "bars", "Speed-up <by> workload", "times", "",
    (Series("DFlash 2", (0.0, 1.0), (1.8, 0.9), ((1.7, 1.9), (0.8, 1.0)), colour="dflash2"),),
    ("chat", "code & tests"), (1.0, "plain"),
)  # fmt: skip
LINES = Chart("lines", "Rate", "tokens", "tok/s", (Series("a", (1.0, 2.0, 4.0), (3.0, 5.0, 4.0)),), log=True)
TABLE = Table(
    ("workload", "tok/s", "speed-up", "share"),
    (("chat | long", 12.3456, Ratio(spread([2.0, 2.5, 3.0])), Share(0.25)), ("code", None, None, None)),
)
REPORT = Report(
    "A <report>", ("It is faster.",), (Section("speed", "Speed", ("Words.",), TABLE, (BARS, LINES)),), (("chip", "x"),),
    "demo on <chip>", (("1.62x", "the whole answer"),), "Too few.",
)  # fmt: skip


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("chart", [BARS, LINES], ids=["bars", "lines"])
def test_a_chart_is_well_formed_svg_inside_its_own_view(chart, width):
    root = ElementTree.fromstring(draw(chart, width))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for element in root.iter():
        for key, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if key in element.attrib:
                assert 0 <= float(element.attrib[key]) <= most, element.attrib


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_title_and_a_legend_take_the_lines_that_they_need_and_stay_inside(width):
    names = [f"a series with a rather long name, number {number}" for number in range(4)]
    series = tuple(Series(name, (0.0, 1.0), (1.0, 2.0)) for name in names)
    root = ElementTree.fromstring(draw(Chart("lines", "Long " * 20, "x", "y", series), width))
    texts = [element for element in root.iter() if element.tag.endswith("text")]
    assert all(float(t.attrib["x"]) + 6.6 * len(t.text) <= width + 8 for t in texts if t.text in names)
    ends = max(float(t.attrib["y"]) for t in texts if t.text in names)
    plot = min(float(e.attrib["y1"]) for e in root.iter() if e.attrib.get("class") == "grid")
    assert ends < plot, "the plot begins below the legend"


def test_a_bar_below_the_mark_is_drawn_as_a_loss_and_every_sample_is_a_dot():
    kinds = re.findall(r'<rect class="(\S+)"', draw(BARS))
    assert kinds == ["f-dflash2", "loss"] and draw(BARS).count('class="dot"') == 4


def test_a_bar_is_as_long_as_its_value():
    gain, loss = (float(width) for width in re.findall(r'<rect class="[^>]* width="([\d.]+)"', draw(BARS)))
    assert gain / loss == pytest.approx(2.0, rel=1e-2)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.003), (-3, 7), (0, 123456), (4, 5)])
def test_ticks_are_round_and_within_the_range(low, high):
    found = ticks(low, high, 6)
    assert low <= found[0] and found[-1] <= high and 2 <= len(found) <= 9


@pytest.mark.parametrize("largest", [3.08, 0.9, 104.0])
def test_an_axis_ends_where_its_values_do(largest):
    chart = Chart("bars", "x", "x", "", (Series("a", (0.0,), (largest / 2,), ((largest / 3, largest),)),), ("w",))
    low, high = span(chart)
    assert low == 0 and largest <= high <= 1.05 * largest


def test_a_method_has_one_colour_everywhere():
    for colours in re.findall(r":root\{([^}]*)\}", STYLE):
        assert all(f"--{name}:" in colours for name in ("plain", "dflash1", "dflash2"))
    chart = Chart("lines", "x", "x", "y", tuple(Series(n, (1.0,), (1.0,), colour=n) for n in ("plain", "dflash2")))
    assert 'class="l-plain"' in draw(chart) and 'class="l-dflash2"' in draw(chart)


def test_the_page_needs_nothing_from_elsewhere_and_escapes_its_words():
    text = page(REPORT)
    assert "A &lt;report&gt;" in text and "<report>" not in text and "code &amp; tests" in text
    assert not re.findall(r"(?:src|href)=|url\(|@import|<script|<link", text)
    assert "prefers-color-scheme:dark" in text


def test_the_page_begins_with_the_pair_the_machine_the_figures_and_the_warning():
    body = page(REPORT).partition("<body>")[2]
    places = [body.index(word) for word in ("demo on &lt;chip&gt;", "1.62x", "Too few.", "It is faster.", "Speed")]
    assert places == sorted(places)


def test_markdown_escapes_bars_and_links_the_charts():
    text = markdown(REPORT)
    assert "chat \\| long" in text and "![Rate](speed-2.svg)" in text and "2.50x (2.00-3.00)" in text


def test_csv_has_numbers_in_full_one_a_column_and_empty_cells_for_none():
    assert csv_text(TABLE).splitlines() == [
        "workload,tok/s,speed-up,speed-up least,speed-up most,share",
        "chat | long,12.3456,2.5,2.0,3.0,0.25",
        "code,,,,,",
    ]


def test_everything_is_written_and_every_chart_is_a_file_that_stands_alone(tmp_path):
    write_report(REPORT, "{}", tmp_path / "new")
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"report.json", "report.html", "report.md", "speed.csv", "speed.svg", "speed-2.svg"}
    root = ElementTree.parse(tmp_path / "new" / "speed-2.svg").getroot()
    assert "prefers-color-scheme:dark" in next(iter(root)).text


def test_a_terminal_shows_the_verdict_last_and_ranges_where_there_is_room():
    for width, ranges in ((80, False), (140, True)):
        console = Console(file=io.StringIO(), width=width)
        show(REPORT, console)
        text = console.file.getvalue()
        assert ("(2.00-3.00)" in text) == ranges and "demo on <chip>" in text
        assert text.rstrip().endswith("It is faster.") and "Too few." in text
        assert max(map(len, text.splitlines())) <= width


def test_a_table_of_many_columns_keeps_its_names_on_a_terminal_of_80_columns():
    columns = (
        "workload",
        "tokens",
        "plain tok/s",
        "DFlash 2 tok/s",
        "answer",
        "decoding",
        "per round",
        "= steps",
        "text",
    )
    ratio = Ratio(spread([2.0, 2.5]))
    table = Table(columns, (("multi-turn-code", 480, 113.2, 218.4, ratio, ratio, 5.73, 2.28, "DIFFERS"),))
    console = Console(file=io.StringIO(), width=80)
    show(Report("x", (), (Section("speed", "Speed", (), table),)), console)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and lines[-1].split() == [
        *("multi-turn-code", "480", "113", "218", "2.25x", "2.25x", "5.73", "2.28", "DIFFERS")
    ]
