"""A report as data: sections of words, tables and charts. Whoever measures fills it; whoever writes knows only this."""

from collections.abc import Sequence
from dataclasses import dataclass, field

Cell = str | float | int | None


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of text or numbers; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Points (x, y) of one name; low and high, where given, are whiskers or a band. x is a category's index in bars."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """kind: `bars` (one a category and series, lying) or `lines`. mark: a value that matters, with its words.

    log: the x axis is logarithmic, base 2.
    """

    kind: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    categories: tuple[str, ...] = ()
    mark: tuple[float, str] | None = None
    log: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, words, and what shows them. key: a word for file names. wide: too much for a terminal."""

    key: str
    title: str
    words: tuple[str, ...] = ()
    table: Table | None = None
    charts: tuple[Chart, ...] = ()
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """title and verdict first: one sentence, or a few, that a reader needs if he reads nothing else."""

    title: str
    verdict: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)
