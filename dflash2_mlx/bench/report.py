"""A report as data: sections of words, tables and charts. Whoever measures fills it; whoever writes knows only this."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dflash2_mlx.bench.numbers import Spread, beyond_noise, short


@dataclass(frozen=True, slots=True)
class Ratio:
    """Times of something, with its spread; it is better above 1."""

    spread: Spread

    def __str__(self) -> str:
        return f"{self.spread.median:.2f}x"

    @property
    def range(self) -> str:
        """Least to most."""
        return f"{self.spread.low:.2f}-{self.spread.high:.2f}"

    @property
    def side(self) -> int:
        """1 above 1 beyond noise, -1 below, 0 neither."""
        return beyond_noise(self.spread.samples)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, 0 to 1. signed: a change instead, which has a sign."""

    value: float
    signed: bool = False

    def __str__(self) -> str:
        return f"{self.value:+.1%}" if self.signed else f"{self.value:.0%}"


Cell = str | float | int | Ratio | Share | None


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of text or numbers, one kind a column; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Points (x, y) of one name. x is a category's index in bars. samples: what each y is the median of.

    colour: a method's, so that it has the same one everywhere; "" = the next of a row of colours. faint: beside
    another series of that colour.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    samples: tuple[tuple[float, ...], ...] = ()
    dashed: bool = False
    colour: str = ""
    faint: bool = False


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
    """title and verdict first: one sentence, or a few, that a reader needs if he reads nothing else.

    about: what was measured, where, in a line. figures: the few that count, number and words. warning: why it is not
    to be taken at its word, or "".
    """

    title: str
    verdict: tuple[str, ...]
    sections: tuple[Section, ...]
    facts: Sequence[tuple[str, str]] = field(default_factory=tuple)
    about: str = ""
    figures: tuple[tuple[str, str], ...] = ()
    warning: str = ""


def cell(value: Cell) -> str:
    """A table's cell as people read it."""
    return short(value) if value is None or isinstance(value, float) else str(value)
