"""The one judge of "the same text": a drafted answer held against plain decoding's. Knows measured answers, no MLX."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dflash2_mlx.bench.answers import Measured
from dflash2_mlx.session.session import Request

# Leads, in logits, that rounding can turn over: a float32 sum taken in another order, and two neighbours of a logit
# between 16 and 32 in bfloat16, which is how far apart half precision and quantised weights round on a GPU.
EXACT, ROUNDED = 1e-3, 0.25
EXPECTED = "expected"  # of a difference: the rule by which drafts are kept draws a text of its own


@dataclass(frozen=True, slots=True)
class Judgement:
    """kind: `same`, `rounding` or `fault`; why: in words. at: the first token that differs.

    margin: by how much plain decoding chose its token there over the other one (logits, whatever decided included).
    """

    kind: str
    at: int | None = None
    margin: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judge:
    """margin(request, at, other): plain decoding's lead of its token `at` over `other`. limit: up to it, rounding."""

    limit: float
    margin: Callable[[Request, int, int], float | None]

    def of(self, request: Request, plain: Measured, drafted: Measured) -> Judgement:
        """Whether the second answer is the first one, plain decoding's."""
        at = first_difference(plain.tokens, drafted.tokens)
        if at is None:
            if plain.reason == drafted.reason:
                return Judgement("same")
            return Judgement("fault", why=f"ended by {drafted.reason}, plain by {plain.reason}")
        if at >= min(len(plain.tokens), len(drafted.tokens)):
            return Judgement("fault", at, why=f"{len(drafted.tokens)} tokens, plain {len(plain.tokens)}")
        margin = self.margin(request, at, drafted.tokens[at])
        if margin is not None and margin <= self.limit:
            return Judgement("rounding", at, margin, "two tokens as likely as each other: rounding")
        return Judgement("fault", at, margin, "the texts part where plain decoding is sure of its token")


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The index of the first token that differs; the shorter length where one text goes on; None for equal texts."""
    if tuple(one) == tuple(other):
        return None
    same = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(same) if a != b), min(len(one), len(other)))
