"""Prefixes of earlier texts, kept so that the next request runs only what is new. Knows target and drafter, no text.

A branch is one text: its growing caches, stored once, and the boundaries at which the whole state can be brought back.
Between answers no state but that of the boundaries is kept. Everything is compared by token ids, so a wrong guess at a
boundary costs memory and never a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dflash2_mlx.models.cache import DraftCache, DraftSnapshot
from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.cache import Snapshot, TargetCache


@dataclass(slots=True, eq=False)
class Boundary:
    """A place in a branch. draft: None where the drafter was not shown the text. comes_back: a prompt named it or hit
    it; the end of an answer comes back only where the template repeats the answer word for word."""

    target: Snapshot
    draft: DraftSnapshot | None
    comes_back: bool
    used: int

    @property
    def position(self) -> int:
        """Tokens before it."""
        return self.target.position

    @property
    def nbytes(self) -> int:
        """Bytes held by this boundary alone."""
        return self.target.nbytes + (self.draft.nbytes if self.draft else 0)


@dataclass(slots=True, eq=False)
class Branch:
    """One text: `tokens` are the rows of both caches; boundaries by position."""

    target: TargetCache
    draft: DraftCache | None
    tokens: tuple[int, ...] = ()
    boundaries: dict[int, Boundary] = field(default_factory=dict)

    @property
    def cache_bytes(self) -> int:
        """Bytes held by the caches, the boundaries not counted."""
        return self.target.nbytes + (self.draft.nbytes if self.draft else 0)

    def shown(self, position: int) -> DraftSnapshot | None:
        """The drafter's state at the last boundary up to `position` whose text it was shown."""
        known = [at for at, boundary in self.boundaries.items() if at <= position and boundary.draft]
        return self.boundaries[max(known)].draft if known else None

    def cut(self, boundary: Boundary) -> None:
        """Go back to `boundary`, for good."""
        for position in [at for at in self.boundaries if at > boundary.position]:
            del self.boundaries[position]
        self.tokens = self.tokens[: boundary.position]
        self.target.restore(boundary.target)
        shown = self.shown(boundary.position)
        if self.draft and shown:
            self.draft.restore(shown)
        elif self.draft:
            self.draft.clear()

    def release(self) -> None:
        """Keep only what grows; the boundaries hold the rest."""
        self.target.release()
        if self.draft:
            self.draft.release()

    def hit(self, prompt: Sequence[int], drafting: bool) -> Boundary | None:
        """The last boundary that `prompt` runs through with a token left over, usable with a drafter if `drafting`."""
        for position in sorted(self.boundaries, reverse=True):
            boundary = self.boundaries[position]
            usable = position < len(prompt) and (boundary.draft is not None or not drafting)
            if usable and self.tokens[:position] == tuple(prompt[:position]):
                return boundary
        return None


class PrefixCache:
    """Branches within a budget of bytes; the least recently used boundaries go first. A budget of 0 keeps nothing.
    The text of the last answer stays whatever its size, until a prompt comes that does not begin with it.

    `open` positions target and drafter, `mark` keeps a boundary at the present place, `close` ends the answer.
    """

    def __init__(self, target: LayeredTarget, drafter: DFlashDrafter | None, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._target, self._drafter = target, drafter
        self._branches: list[Branch] = []
        self._running: Branch | None = None
        self._clock = 0

    @property
    def nbytes(self) -> int:
        """Bytes held by all branches; boundaries that several share count once."""
        distinct = {id(kept): kept for branch in self._branches for kept in branch.boundaries.values()}
        caches = sum(branch.cache_bytes for branch in self._branches)
        return caches + sum(boundary.nbytes for boundary in distinct.values())

    @property
    def boundaries(self) -> int:
        """How many places can be come back to."""
        return sum(len(branch.boundaries) for branch in self._branches)

    def open(self, prompt: Sequence[int], *, boundaries: Sequence[int] = (), drafting: bool) -> int:
        """Make target and drafter hold the longest known prefix of `prompt`; its length, less than the prompt's.

        boundaries: places in `prompt` that are going to be marked; those that are known count as used.
        """
        assert self._running is None, "an answer is open"
        self._clock += 1
        hits = [(branch, hit) for branch in self._branches if (hit := branch.hit(prompt, drafting))]
        if not hits:
            self._run(Branch(self._target.new_cache(), self._drafter.new_cache() if self._drafter else None))
            return 0
        branch, boundary = max(hits, key=lambda pair: pair[1].position)
        for position in {*boundaries, boundary.position}:
            if position in branch.boundaries and position <= boundary.position:
                branch.boundaries[position].used = self._clock
        boundary.comes_back = True
        if any(kept.comes_back for position, kept in branch.boundaries.items() if position > boundary.position):
            branch = self._fork(branch, boundary)
        self._running = branch  # from here on it is damaged where something fails
        branch.cut(boundary)
        self._run(branch)
        return boundary.position

    def mark(self, prompt: Sequence[int]) -> None:
        """Keep the present place, which lies in `prompt`, as a boundary that comes back."""
        branch = self._running
        assert branch is not None, "no answer is open"
        if self.budget_bytes:
            branch.tokens = tuple(prompt[: self._target.position])
            self._keep(branch, comes_back=True)
            self._evict()

    def close(self, tokens: Sequence[int]) -> None:
        """End the answer. tokens: the prompt and all that was committed; the caches hold a prefix of it."""
        branch, position = self._running, self._target.position
        assert branch is not None, "no answer is open"
        try:
            if not self.budget_bytes or not 0 < position <= len(tokens):
                self.drop()
                return
            branch.tokens = tuple(tokens[:position])
            if position not in branch.boundaries:
                self._keep(branch, comes_back=False)
            branch.release()
        except BaseException:
            self.drop()
            raise
        self._running = None
        self._idle()
        self._evict()

    def drop(self) -> None:
        """Forget the text of the answer that is open, whose caches may be damaged. Other texts are not touched."""
        branch, self._running = self._running, None
        if branch in self._branches:
            self._branches.remove(branch)
        self._idle()

    def _run(self, branch: Branch) -> None:
        if branch not in self._branches:
            self._branches.append(branch)
        self._running = branch
        self._target.use(branch.target)
        if self._drafter and branch.draft:
            self._drafter.cache = branch.draft
        self._evict()  # the last answer may have been longer than the budget

    def _idle(self) -> None:
        """Take target and drafter off the branch."""
        self._target.reset()
        if self._drafter:
            self._drafter.cache = self._drafter.new_cache()

    def _keep(self, branch: Branch, *, comes_back: bool) -> None:
        shown = self._drafter is not None and self._drafter.cache.position == self._target.position
        draft = self._drafter.snapshot() if self._drafter and shown else None
        boundary = Boundary(branch.target.snapshot(), draft, comes_back, self._clock)
        branch.boundaries[boundary.position] = boundary

    def _fork(self, branch: Branch, boundary: Boundary) -> Branch:
        """A branch of its own up to `boundary`, so that what lies behind it in `branch` stays."""
        shown = branch.shown(boundary.position)
        draft = branch.draft.fork(shown) if branch.draft and shown else None
        if draft is None and self._drafter:
            draft = self._drafter.new_cache()
        fork = Branch(branch.target.fork(boundary.target, self._target.new_cache()), draft, branch.tokens)
        fork.boundaries = {p: kept for p, kept in branch.boundaries.items() if p <= boundary.position}
        return fork

    def _evict(self) -> None:
        """Drop the least recently used boundaries until the budget holds. What this answer used stays."""
        while self.nbytes > self.budget_bytes:
            candidates = [
                (boundary.used, boundary.position, number)
                for number, branch in enumerate(self._branches)
                for boundary in branch.boundaries.values()
                if boundary.used < self._clock
            ]
            if not candidates:
                return
            _, position, number = min(candidates)
            self._forget(self._branches[number], position)

    def _forget(self, branch: Branch, position: int) -> None:
        """Drop a boundary, and rows that no other one needs."""
        del branch.boundaries[position]
        if branch is self._running:
            return
        if not branch.boundaries:
            self._branches.remove(branch)
            return
        last = branch.boundaries[max(branch.boundaries)]
        if last.position < position:
            shorter = self._fork(branch, last)
            shorter.release()
            branch.target, branch.draft, branch.tokens = shorter.target, shorter.draft, branch.tokens[: last.position]
