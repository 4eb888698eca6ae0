"""How many rows a block has, and why. Knows no MLX.

Source: quantised matrix products on Apple GPUs serve at most 5 rows in one pass over the weights, and fused attention
needs rows * (query heads / kv heads) <= 32: past either, a round costs about twice as much.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dflash2_mlx.errors import UsageError

_ROWS_IN_ONE_PASS = 5
_FUSED_QUERIES = 32

# Rounds of 1, 2, ... rows in plain steps, 4-bit weights, by chip family; others are measured from nothing.
ROUND_COSTS = {
    "M3": (1.0, 1.2, 1.34, 1.53, 1.87),
    "M4": (1.0, 1.2, 1.34, 1.68, 2.04),
    "M5": (1.0, 1.2, 1.39, 1.54, 1.72),
}
_MEMORY = 32  # trials after which an old one has lost two thirds of its weight
_FADE, _PLAIN_FADE = 0.99, 0.995  # weight of what a round, or a plain step, did not try
_PRIOR, _PRIOR_TRIALS, _POOLED_TRIALS = 0.7, 4, 16  # acceptance before anything is known
_SAMPLES, _FIRST_SAMPLES, _FEW = 9, 2, 4  # round times kept; enough to judge; up to so many the least is believed
_TIE = 1.005  # a wider block must be better by this
_FIRST_GAP, _LAST_GAP, _PROBE_ROUNDS = 16, 160, 3  # rounds between probes, doubled while they lose
_NEAR, _STALE = 0.9, 48  # what is probed: nearly as good, and not timed for so many rounds


@dataclass(frozen=True, slots=True)
class BlockSize:
    """Rows of a block, anchor included; the reason for people; a warning where the choice costs something."""

    rows: int
    reason: str
    warning: str | None = None


def choose_block_size(requested: int | None, trained: int, *, quantized: bool, queries_per_kv: int) -> BlockSize:
    """The block size for a drafter trained with `trained` rows on this target.

    Raises: UsageError for more rows than the drafter was trained with.
    """
    if requested is not None and requested > trained:
        raise UsageError(
            f"block size {requested} is above the {trained} rows that this drafter was trained with. "
            f"Give 1 (plain decoding) to {trained}."
        )
    cap = max(2, min(_ROWS_IN_ONE_PASS, _FUSED_QUERIES // queries_per_kv)) if quantized else trained
    if requested is None:
        if cap >= trained:
            return BlockSize(trained, "the drafter's own block size")
        return BlockSize(cap, f"the target is quantised: more than {cap} rows cost a second pass over its weights")
    if requested == 1:
        return BlockSize(1, "asked for: a block of one row is plain decoding")
    if requested > cap:
        costly = f"block size {requested} on a quantised target: rows past {cap} cost a second pass over its weights"
        return BlockSize(requested, "asked for", costly)
    return BlockSize(requested, "asked for")


class WidthPolicy:
    """Chooses each round's rows: the most tokens for the time, `argmax_b E[tokens(b)] / time(b)`, b in 1 to `widest`.

    E comes from how often the draft token at each position was kept lately, time from measured rounds, before that
    from `costs` (plain steps by rows). What looks nearly as good is probed now and then, less often while it loses.
    The choice changes no text. clock: seconds.
    """

    def __init__(
        self, widest: int, costs: Sequence[float] | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._costs, self._clock = costs, clock
        self._kept = [0.0] * (widest - 1)
        self._tried = [0.0] * (widest - 1)
        self._times: list[deque[float]] = [deque(maxlen=_SAMPLES) for _ in range(widest)]
        self._timed_at = [0] * widest
        self._round, self._since_probe, self._gap, self._probes_left = 0, 0, _FIRST_GAP, 0
        self._last: float | None = None
        self._plain = False  # whether the last round was a plain step
        self._rows = self._home = self._best(self._worth())

    def rows(self) -> int:
        """See Widths.rows."""
        return self._rows

    def note(self) -> str:
        """The best width so far, to follow after the reason for the widest block; `rows` differs from it in a probe."""
        if self._home > 1:
            return f"; automatic, now {self._home} rows"
        plain, drafted = self.rates()
        pays_not = plain is not None and drafted is not None and plain > drafted
        return "; automatic, now plain steps" + (": no width pays here" if pays_not else "")

    def rates(self) -> tuple[float | None, float | None]:
        """Tokens a second of plain steps and of the best wider block, where they were measured."""
        measured = [
            worth if len(times) >= _FIRST_SAMPLES else None
            for worth, times in zip(self._worth(), self._times, strict=True)
        ]
        return measured[0], max((worth for worth in measured[1:] if worth is not None), default=None)

    def start(self) -> None:
        """An answer begins: the time since the last round is not a round's."""
        self._last = None

    def record(self, rows: int, accepted: int) -> None:
        """A round of `rows` rows is done and `accepted` of its `rows - 1` draft tokens were kept.

        A plain step is told of once the device has begun it, a drafted round once it is over: the first plain step
        behind a drafted round would seem to take no time.
        """
        now, plain, self._round = self._clock(), rows == 1, self._round + 1
        if self._last is not None and (self._plain or not plain):
            self._times[rows - 1].append(now - self._last)
            self._timed_at[rows - 1] = self._round
        self._last, self._plain = now, plain
        self._learn(rows, accepted)
        if self._probes_left > 1:
            self._probes_left -= 1
            return
        worth = self._worth()
        best = self._best(worth)
        if self._probes_left:
            self._probes_left, self._since_probe = 0, 0
            self._gap = _FIRST_GAP if best != self._home else min(_LAST_GAP, 2 * self._gap)
        self._home, self._since_probe = best, self._since_probe + 1
        self._rows = self._probe(worth) or best

    def _learn(self, rows: int, accepted: int) -> None:
        for position in range(len(self._kept)):
            tried = position < rows - 1 and position <= accepted
            fade = 1 - 1 / _MEMORY if tried else _FADE if rows > 1 else _PLAIN_FADE
            self._kept[position] = self._kept[position] * fade + (tried and position < accepted)
            self._tried[position] = self._tried[position] * fade + tried

    def _worth(self) -> list[float]:
        """Expected tokens a second of 1, 2, ... rows; before anything is timed, a plain step."""
        pooled = (sum(self._kept) + _PRIOR_TRIALS * _PRIOR) / (sum(self._tried) + _PRIOR_TRIALS)
        tokens, reach = [1.0], 1.0
        for kept, tried in zip(self._kept, self._tried, strict=True):
            reach *= (kept + _POOLED_TRIALS * pooled) / (tried + _POOLED_TRIALS)
            tokens.append(tokens[-1] + reach)
        timed = {
            rows: statistics.median_low(times) if len(times) > _FEW else min(times)
            for rows, times in enumerate(self._times, 1)
            if times
        }
        return [count / self._time(rows, timed) for rows, count in enumerate(tokens, 1)]

    def _time(self, rows: int, timed: dict[int, float]) -> float:
        if rows in timed:
            return timed[rows]
        if self._costs and rows <= len(self._costs):
            near = min((n for n in timed if n <= len(self._costs)), key=lambda n: abs(n - rows), default=None)
            return self._costs[rows - 1] * (timed[near] / self._costs[near - 1] if near else 1.0)
        below = max((n for n in timed if n < rows), default=None)
        above = min((n for n in timed if n > rows), default=None)
        if below and above:
            return timed[below] + (timed[above] - timed[below]) * (rows - below) / (above - below)
        if above:
            return timed[above] * (0.6 + 0.4 * rows / above)  # hopeful, so that it is tried
        if below:
            return timed[below] * (1 + 0.1 * (rows - below))
        return 1 + 0.15 * rows

    def _best(self, worth: Sequence[float]) -> int:
        return next(rows for rows, value in enumerate(worth, 1) if value * _TIE >= max(worth))

    def _probe(self, worth: Sequence[float]) -> int | None:
        """A width to try for a few rounds instead of the best one: an untimed one, or what may have changed."""
        best, widths = self._home, range(1, len(worth) + 1)
        if len(self._times[best - 1]) < _FIRST_SAMPLES:
            return None
        unknown = [n for n in widths if len(self._times[n - 1]) < _FIRST_SAMPLES]
        promising = [n for n in unknown if n == 1 or worth[n - 1] >= worth[best - 1]]
        if promising and best != 1:
            return self._try(max(promising, key=lambda n: worth[n - 1]), _FIRST_SAMPLES)
        if self._since_probe < self._gap:
            return None
        self._since_probe = 0
        other = max((n for n in widths if n != best), key=lambda n: worth[n - 1])
        stale = self._round - self._timed_at[other - 1] > _STALE
        if best != 1 and not (stale and worth[other - 1] >= _NEAR * worth[best - 1]):
            return None
        return self._try(other, _PROBE_ROUNDS)

    def _try(self, rows: int, timed: int) -> int:
        """`rows`, until so many rounds of them were timed."""
        self._probes_left = timed + (rows == 1)
        return rows
