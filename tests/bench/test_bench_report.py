"""Reports as HTML, SVG, Markdown, CSV and PNG."""

import importlib.util
import re
import xml.etree.ElementTree as ElementTree

import pytest

from dflash2_mlx.bench.axes import ticks
from dflash2_mlx.bench.page import page
from dflash2_mlx.bench.report import Chart, Report, Section, Series, Table
from dflash2_mlx.bench.svg import draw
from dflash2_mlx.bench.writers import NO_PLOTS, csv_text, markdown, write_report

BARS = Chart(
    "bars", "Speed-up <by> workload", "times", "",
    (Series("DFlash 2", (0.0, 1.0), (1.8, 0.9), (1.7, 0.8), (1.9, 1.0)),), ("chat", "code & tests"), (1.0, "plain"),
)  # fmt: skip
LINES = Chart("lines", "Rate", "tokens", "tok/s", (Series("a", (1.0, 2.0, 4.0), (3.0, 5.0, 4.0)),), log=True)
TABLE = Table(("workload", "tok/s"), (("chat | long", 12.3456), ("code", None)))
REPORT = Report(
    "A <report>", ("It is faster.",), (Section("speed", "Speed", ("Words.",), TABLE, (BARS, LINES)),), (("chip", "x"),)
)


@pytest.mark.parametrize("chart", [BARS, LINES], ids=["bars", "lines"])
def test_a_chart_is_well_formed_svg_inside_its_own_view(chart):
    root = ElementTree.fromstring(draw(chart))
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for element in root.iter():
        for key, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if key in element.attrib:
                assert 0 <= float(element.attrib[key]) <= most, element.attrib


def test_a_legend_that_needs_two_rows_moves_the_chart_down_and_stays_inside():
    names = [f"a series with a rather long name, number {number}" for number in range(4)]
    text = draw(Chart("lines", "Long", "x", "y", tuple(Series(name, (0.0, 1.0), (1.0, 2.0)) for name in names)))
    assert int(re.search(r"translate\(0,(\d+)\)", text)[1]) > 0
    assert max(float(x) for x in re.findall(r'<rect class="s\d" x="(\d+)"', text)) + 16 + 6.6 * len(names[0]) < 760


def test_a_bar_below_the_mark_is_drawn_as_a_loss():
    kinds = re.findall(r'<rect class="(\w+)"', draw(BARS))
    assert kinds == ["s0", "loss"]


def test_a_bar_is_as_long_as_its_value():
    gain, loss = (
        float(width) for width in re.findall(r'<rect class="\w+" x="[\d.]+" y="[\d.]+" width="([\d.]+)"', draw(BARS))
    )
    assert gain / loss == pytest.approx(2.0, rel=1e-2)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.003), (-3, 7), (0, 123456), (5, 5)])
def test_ticks_are_round_and_cover_the_range(low, high):
    found = ticks(low, high)
    assert found[0] <= low and found[-1] >= high and 2 <= len(found) <= 9


def test_the_page_needs_nothing_from_elsewhere_and_escapes_its_words():
    text = page(REPORT)
    assert "A &lt;report&gt;" in text and "<report>" not in text and "code &amp; tests" in text
    assert not re.findall(r"(?:src|href)=|url\(|@import|<script|<link", text)
    assert "prefers-color-scheme:dark" in text


def test_markdown_escapes_bars_and_links_only_plots_that_exist():
    text = markdown(REPORT, ["speed.png"])
    assert "chat \\| long" in text and "![Speed](speed.png)" in text and "speed-2.png" not in text


def test_csv_has_numbers_in_full_and_empty_cells_for_none():
    assert csv_text(TABLE) == "workload,tok/s\r\nchat | long,12.3456\r\ncode,\r\n"


def test_without_matplotlib_everything_but_the_plots_is_written_and_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = write_report(REPORT, "{}", tmp_path / "new")
    assert NO_PLOTS in said
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {"report.json", "report.html", "report.md", "speed.csv"}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_with_matplotlib_every_chart_is_a_picture(tmp_path):
    write_report(REPORT, "{}", tmp_path)
    for name in ("speed.png", "speed-2.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "![Speed](speed-2.png)" in (tmp_path / "report.md").read_text()
