"""What is said about an answer: its numbers in one line, and why it ended early. Knows events only."""

from collections.abc import Sequence

from rich.cells import cell_len

from dflash2_mlx.events import Finished, Summary

_NEARLY_FULL = 0.75


def answer_line(summary: Summary, limit: int, plain_rate: float | None = None) -> list[str]:
    """The parts of the line about an answer, the ones that matter most first.

    limit: tokens that the context holds. plain_rate: what plain decoding was measured at, if it was.
    """
    used = summary.prompt_tokens + summary.completion_tokens
    plain_rate = plain_rate or summary.plain_rate
    parts = [f"{summary.decode_rate:.1f} tok/s"]
    if summary.rounds and plain_rate:
        parts.append(f"{summary.decode_rate / plain_rate:.2f}x plain")
    if summary.rounds:
        parts.append(f"{summary.tokens_per_round:.2f} tokens per round")
    elif summary.speculation_off:
        parts.append(f"drafting off: {summary.speculation_off}")
    parts.append(f"first token {summary.first_token_s:.2f} s")
    if summary.mostly_plain:
        steps = summary.plain_steps + summary.rounds
        parts.append(f"drafting did not pay: {summary.plain_steps} of {steps} steps plain, /block N keeps a width")
    if used > limit * _NEARLY_FULL:
        parts.append(f"context {used} of {limit}")
    return parts


def wrapped(parts: Sequence[str], separator: str, width: int) -> list[str]:
    """The parts on as few lines as hold them, none of them broken."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} {separator} {part}" if lines[-1] else part
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return [line for line in lines if line]


def ending(finished: Finished, *, thinking: bool, limited: bool, limit: int) -> str | None:
    """Why the answer ended before its end, and what to do; None for a whole answer.

    thinking: no answer had begun. limited: by max_tokens, which the user can raise.
    """
    if finished.reason != "length":
        return (
            "It ended inside its thinking, without an answer. /think off helps, or another question."
            if thinking
            else None
        )
    summary = finished.summary
    count, used = summary.completion_tokens, summary.prompt_tokens + summary.completion_tokens
    if used >= limit:
        return (
            f"The context is full ({used} of {limit} tokens), so the answer is cut. "
            "/drop 1 forgets the oldest turn, /clear all of them."
        )
    if thinking:
        more = "give it more with /set max_tokens=N, or " if limited else ""
        return f"It ran out of tokens while thinking ({count}): {more}make it think less with /think low or /think off."
    return f"The answer is cut at {count} tokens, the limit. /set max_tokens=N raises it, max_tokens=off lifts it."
