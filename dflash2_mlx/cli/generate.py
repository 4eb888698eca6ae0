"""`dflash2-mlx generate`: one prompt, one answer. MLX is imported only once the parameters are checked."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dflash2_mlx.cli import options
from dflash2_mlx.cli.inputs import read_bias, read_prompt, read_tools
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.report import document, stat_lines, tool_call
from dflash2_mlx.config import EngineParams, LoadParams, SamplingParams, TextParams
from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Delta, Finished, ToolCall

if TYPE_CHECKING:
    from dflash2_mlx.loading import Pair
    from dflash2_mlx.session import Event


def generate(
    prompt: options.PromptArgument = None,
    model: options.Model = "demo",
    draft: options.Draft = None,
    draft_revision: options.DraftRevision = None,
    draft_bits: options.DraftBits = None,
    block_size: options.BlockSize = None,
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
    logprobs: options.Logprobs = None,
    stats: options.ShowStats = False,
    as_json: options.Json = False,
) -> None:
    """Answer one prompt. The answer goes to stdout as its tokens are accepted, everything else to stderr.

    The prompt is the argument (or --prompt-file), then whatever is piped to stdin.
    """
    if logprobs is not None and not as_json:
        raise UsageError("logprobs are part of the JSON document. Add --json, or drop --logprobs.")
    changes = {
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
    }
    asked = {name: value for name, value in changes.items() if value is not None}
    sampling = SamplingParams(
        seed=seed,
        presence_penalty=presence_penalty or 0.0,
        frequency_penalty=frequency_penalty or 0.0,
        logit_bias=read_bias(logit_bias),
        logprobs=logprobs,
    )
    replace(sampling, **asked)  # type: ignore[arg-type]  # refuses bad values before anything is loaded
    engine = EngineParams(max_tokens=max_tokens, block_size=block_size, acceptance=acceptance)  # type: ignore[arg-type]
    text = TextParams(tuple(stop or ()), system, reasoning, read_tools(tools), raw)
    load = LoadParams(model, draft, draft_bits, draft_revision, not no_draft, require_draft)
    question = read_prompt(prompt, prompt_file)
    pair = _load(load)
    out = Out(quiet=as_json)
    events = _stream(pair, question, (sampling, asked), engine, text)
    if as_json:
        _print_document(pair, events, out)
        return
    _show(events, out, stats)


def _load(params: LoadParams) -> "Pair":
    from dflash2_mlx.loading import load_pair

    return load_pair(params)


def _stream(
    pair: "Pair",
    question: str,
    choice: tuple[SamplingParams, dict[str, float | int]],
    engine: EngineParams,
    text: TextParams,
) -> Iterator["Event"]:
    """The answer's events, after what must be said before it."""
    from dflash2_mlx.session import Request, block_size_for, default_sampling, stream

    sampling, asked = choice
    defaults = default_sampling(pair)
    known = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    sampling = replace(sampling, **{name: asked.get(name, getattr(defaults, name)) for name in known})
    block = block_size_for(pair, engine.block_size)
    if block.rows == 1:
        Out().note(f"dflash2-mlx: drafting is off: {block.reason}")
    if block.warning:
        Out().note(f"dflash2-mlx: {block.warning}")
    return stream(pair, Request(question, sampling, engine, text))


def _print_document(pair: "Pair", events: Iterator["Event"], out: Out) -> None:
    from dflash2_mlx.api import gather

    out.document(document(pair, gather(events)))


def _show(events: Iterator["Event"], out: Out, stats: bool) -> None:
    """Stream the answer; then say what a reader could not guess."""
    for event in events:
        if isinstance(event, Delta):
            (out.answer if event.channel == "answer" else out.reasoning)(event.text)
        elif isinstance(event, ToolCall):
            out.answer(json.dumps(tool_call(event), ensure_ascii=False) + "\n")
        elif isinstance(event, Finished):
            out.end_line()
            if event.reason == "length":
                out.note(f"dflash2-mlx: stopped by the token limit after {event.summary.completion_tokens} tokens")
            if stats:
                for line in stat_lines(event.summary):
                    out.note(line)
