"""`dflash2-mlx generate`: one prompt, one answer. MLX is imported only once the parameters are checked."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dflash2_mlx.cli import options
from dflash2_mlx.cli.inputs import (
    read_bias,
    read_block_size,
    read_prompt,
    read_tools,
    refuse_broken_text,
    sampling_asked,
)
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.ready import chosen_model, expected_context, get_ready
from dflash2_mlx.cli.report import document, plain_note, stat_lines, tool_call
from dflash2_mlx.config import EngineParams, LoadParams, TextParams
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Delta, Finished, ToolCall
from dflash2_mlx.store.opening import OpenedPair

if TYPE_CHECKING:
    from dflash2_mlx.session.session import Event


def generate(
    prompt: options.PromptArgument = None,
    model: options.Model = None,
    draft: options.Draft = None,
    draft_revision: options.DraftRevision = None,
    draft_bits: options.DraftBits = None,
    block_size: options.BlockSize = "auto",
    require_draft: options.RequireDraft = False,
    no_draft: options.NoDraft = False,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    logit_bias: options.LogitBias = None,
    acceptance: options.Acceptance = "coupled",
    stop: options.Stop = None,
    system: options.System = None,
    tools: options.Tools = None,
    reasoning: options.Reasoning = None,
    raw: options.Raw = False,
    prompt_file: options.PromptFile = None,
    stdin: options.StdIn = False,
    logprobs: options.Logprobs = None,
    stats: options.ShowStats = False,
    as_json: options.Json = False,
) -> None:
    """Answer one prompt. The answer goes to stdout as its tokens are accepted, everything else to stderr.

    The prompt is the argument (or --prompt-file), then what is piped to stdin: `git diff | dflash2-mlx generate "..."`.
    """
    asked = sampling_asked(locals() | {"logit_bias": read_bias(logit_bias)})
    engine = EngineParams(max_tokens, read_block_size(block_size), acceptance)  # type: ignore[arg-type]
    refuse_broken_text("--system or --stop", system, *(stop or ()))
    text = TextParams(tuple(stop or ()), system, reasoning, read_tools(tools), raw)
    if logprobs is not None and not as_json:
        raise UsageError("logprobs are part of the JSON document. Add --json, or drop --logprobs.")
    question = (read_prompt(prompt, prompt_file, stdin=stdin), text)
    load = LoadParams(chosen_model(model), draft, draft_bits, draft_revision, not no_draft, require_draft)
    opened = get_ready(load, expected_context(question[0], max_tokens))
    _answer(opened, asked, engine, question, stats=None if as_json else stats)


def _answer(
    opened: OpenedPair,
    asked: Mapping[str, object],
    engine: EngineParams,
    question: tuple[str, TextParams],
    *,
    stats: bool | None,
) -> None:
    """Load, answer, print; `stats` None prints one JSON document."""
    from dflash2_mlx.api import gather
    from dflash2_mlx.loading.load import load_opened
    from dflash2_mlx.session.session import Request, block_size_for, default_sampling, stream

    pair, out = load_opened(opened), Out()
    sampling = replace(default_sampling(pair), **asked)  # type: ignore[arg-type]
    block = block_size_for(pair, engine.block_size)
    opened.params.check_block(block.rows)
    if block.rows == 1:
        out.note(f"dflash2-mlx: drafting is off: {block.reason}")
    if block.warning:
        out.note(f"dflash2-mlx: {block.warning}")
    events = stream(pair, Request(question[0], sampling, engine, question[1]))
    if stats is None:
        out.document(document(pair, gather(events)))
        return
    _show(events, out, stats)


def _show(events: Iterator["Event"], out: Out, stats: bool) -> None:
    """Stream the answer; then say what a reader could not guess. An interrupted answer ends its line."""
    try:
        _show_events(events, out, stats)
    except KeyboardInterrupt:
        out.end_line()
        raise


def _show_events(events: Iterator["Event"], out: Out, stats: bool) -> None:
    for event in events:
        if isinstance(event, Delta):
            (out.answer if event.channel == "answer" else out.reasoning)(event.text)
        elif isinstance(event, ToolCall):
            out.answer(json.dumps(tool_call(event), ensure_ascii=False) + "\n")
        elif isinstance(event, Finished):
            out.end_line()
            if event.reason == "length":
                out.note(f"dflash2-mlx: stopped by the token limit after {event.summary.completion_tokens} tokens")
            if note := plain_note(event.summary):
                out.note(f"dflash2-mlx: {note}")
            if stats:
                for line in stat_lines(event.summary):
                    out.note(line)
