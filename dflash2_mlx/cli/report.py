"""An answer's numbers as lines for people and as a JSON document. Knows events only."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from dflash2_mlx.events import Summary, TokenLogprob, ToolCall

if TYPE_CHECKING:
    from dflash2_mlx.api import Answer
    from dflash2_mlx.loading.pair import Pair


def stat_lines(summary: Summary) -> list[str]:
    """The numbers, one idea a line."""
    lines = [
        f"prompt       {summary.prompt_tokens} tokens, {summary.cached_tokens} cached, "
        f"prefill {summary.prefill_rate:.1f} tok/s, first token after {summary.first_token_s:.3f} s",
        f"answer       {summary.completion_tokens} tokens at {summary.decode_rate:.1f} tok/s, "
        f"{summary.total_s:.2f} s in all",
        f"block size   {summary.block_size}: {summary.block_size_reason}",
    ]
    if summary.speculation_off:
        lines.append(f"drafting     off: {summary.speculation_off}")
    else:
        positions = " ".join(f"{share:.2f}" for share in summary.acceptance_by_position)
        lines += [
            f"drafting     {summary.tokens_per_round:.2f} tokens per round over {summary.rounds} rounds "
            f"(the target's own token included)",
            f"acceptance   {summary.accepted} of {summary.drafted} draft tokens ({summary.acceptance:.1%}), "
            f"by position: {positions}; rule: {summary.acceptance_rule}",
        ]
        if sum(count > 0 for count in summary.rounds_by_width) > 2:
            widths = ", ".join(f"{count} of {rows}" for rows, count in enumerate(summary.rounds_by_width, 1) if count)
            lines.append(f"widths       rounds by rows: {widths}")
    if summary.seed is not None:
        lines.append(f"seed         {summary.seed}")
    lines.append(f"memory       {summary.peak_bytes / 2**20:.0f} MiB at most")
    return lines


def plain_note(summary: Summary) -> str | None:
    """A line where an answer that could have been drafted was mostly not; None otherwise."""
    if not summary.mostly_plain:
        return None
    plain, steps = summary.plain_steps, summary.plain_steps + summary.rounds
    return f"drafting did not pay in this answer, so {plain} of {steps} steps were plain. --block-size N keeps a width."


def document(pair: "Pair", answer: "Answer") -> str:
    """The JSON document of `generate --json`."""
    summary = answer.summary
    content: dict[str, object] = {
        "text": answer.text,
        "reasoning": answer.reasoning,
        "tool_calls": [tool_call(call) for call in answer.tool_calls],
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish_reason,
        "prompt_tokens": summary.prompt_tokens,
        "completion_tokens": summary.completion_tokens,
        "rounds": list(answer.rounds),
        "stats": asdict(summary),
        "model": pair.model_name,
        "draft": pair.draft_name,
        "block_size": summary.block_size,
        "seed": summary.seed,
    }
    if answer.logprobs:
        content["logprobs"] = _logprobs(answer.logprobs)
    return json.dumps(content, ensure_ascii=False, indent=2)


def tool_call(call: ToolCall) -> dict[str, object]:
    """One tool call with its arguments as a mapping."""
    return {"name": call.name, "arguments": json.loads(call.arguments)}


def _logprobs(entries: Sequence[TokenLogprob]) -> list[dict[str, object]]:
    return [
        {"token": e.token, "logprob": e.logprob, "top": [{"token": t, "logprob": p} for t, p in e.top]} for e in entries
    ]
