"""`dflash2-mlx serve`: the local server. Nothing heavy is imported before the parameters are checked."""

import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from dflash2_mlx.cli import options
from dflash2_mlx.cli.inputs import read_block_size
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.ready import chosen_model, get_ready
from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import UsageError
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.worker import DEFAULT_QUEUE
from dflash2_mlx.store.hub import gigabytes
from dflash2_mlx.store.opening import OpenedPair

if TYPE_CHECKING:
    from dflash2_mlx.server.run import Listening

_LOG_LEVELS = ("debug", "info", "warning", "error")


def serve(
    model: options.Model = None,
    draft: options.Draft = None,
    draft_revision: options.DraftRevision = None,
    draft_bits: options.DraftBits = None,
    block_size: options.BlockSize = "auto",
    require_draft: options.RequireDraft = False,
    no_draft: options.NoDraft = False,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8000,
    api_key: options.ApiKey = None,
    cors_origin: options.CorsOrigin = None,
    allowed_host: options.AllowedHost = None,
    served_model_name: options.ServedName = None,
    max_context: options.MaxContext = None,
    max_queue: options.MaxQueue = DEFAULT_QUEUE,
    sse_keepalive: options.SseKeepAlive = "comment",
    images: options.Images = "refuse",
    prefix_cache_gb: options.PrefixCacheGb = None,
    effort_map: options.EffortMap = None,
    log_level: options.LogLevel = "info",
    open_page: options.OpenPage = False,
) -> None:
    """Serve one pair over HTTP to OpenAI and Anthropic clients, until Ctrl-C.

    Everything that is said goes to stderr: a banner once requests are answered, then a line for each.
    """
    if log_level not in _LOG_LEVELS:
        raise UsageError(f"log-level is {log_level!r}. Give {', '.join(_LOG_LEVELS)}.")
    settings = ServeSettings(
        host=host,
        port=port,
        api_key=api_key or os.environ.get(options.KEY_VARIABLE) or None,
        cors_origins=tuple(cors_origin or ()),
        allowed_hosts=tuple(allowed_host or ()),
        max_context=max_context,
        max_queue=max_queue,
        block_size=read_block_size(block_size),
        keep_alive=sse_keepalive,  # type: ignore[arg-type]
        images=images,  # type: ignore[arg-type]
        served_name=served_model_name,
        cache_bytes=read_gigabytes(prefix_cache_gb),
        effort_map=read_effort_map(effort_map or ()),
    )
    load = LoadParams(chosen_model(model), draft, draft_bits, draft_revision, not no_draft, require_draft)
    opened = get_ready(load, max_context)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("dflash2_mlx").setLevel(log_level.upper())
    raise typer.Exit(_run(opened, settings, Out(), open_page))


def _run(opened: OpenedPair, settings: ServeSettings, out: Out, open_page: bool) -> int:
    from dflash2_mlx.server.model import open_engine
    from dflash2_mlx.server.run import serve as run

    out.note(f"dflash2-mlx: loading {opened.params.model}")
    return run(lambda: open_engine(opened, settings), settings, lambda listening: _begin(listening, out, open_page))


def _begin(listening: "Listening", out: Out, open_page: bool) -> None:
    import webbrowser  # of no use to any other command

    banner(listening, out)
    if open_page and not webbrowser.open(listening.url):
        out.note(f"warning      no browser could be opened; the page is at {listening.url}")


def banner(listening: "Listening", out: Out) -> None:
    """Where it is, what answers, whether it drafts, and a line to try."""
    model, settings = listening.model, listening.settings
    drafting = f"off: {model.speculation_off}" if model.speculation_off else "on"
    key = f' -H "Authorization: Bearer ${options.KEY_VARIABLE}"' if settings.api_key else ""
    body = f'{{"model": "{model.name}", "messages": [{{"role": "user", "content": "Who are you?"}}]}}'
    lines = [
        f"dflash2-mlx serves {listening.url}/v1 (OpenAI) and {listening.url} (Anthropic)",
        f"page         {listening.url}/ (a chat in the browser)",
        f"model        {model.name}, context {model.context} tokens{_less(settings.max_context, model.context)}",
        f"drafter      {model.draft_name or 'none'}",
        f"drafting     {drafting}; block size {model.block_size} ({model.block_size_reason})",
        f"memory       {gigabytes(model.weight_bytes)} of weights, {_kept(model.cache_bytes)}",
        f"key          {'needed' if settings.api_key else 'none'}",
        f"try          curl {listening.url}/v1/chat/completions{key} -d '{body}'",
    ]
    for line in [*lines, *(f"warning      {warning}" for warning in model.warnings)]:
        out.note(line)


def _less(asked: int | None, context: int) -> str:
    """What was asked for, where the model has less."""
    return f", the model's most: --max-context {asked} is more" if asked and asked > context else ""


def _kept(cache_bytes: int) -> str:
    return f"at most {gigabytes(cache_bytes)} of kept prefixes" if cache_bytes else "no prefixes are kept"


def read_gigabytes(number: float | None) -> int | None:
    """Bytes; None where nothing was given. Raises: UsageError."""
    if number is None:
        return None
    if not 0 <= number < 1e6:
        raise UsageError(f"prefix-cache-gb is {number}. Give a number of gigabytes, or 0 to keep nothing.")
    return int(number * 1e9)


def read_effort_map(pairs: Sequence[str]) -> dict[str, str]:
    """`WORD=LEVEL` pairs, several to an argument if separated by commas. Raises: UsageError."""
    known: dict[str, str] = {}
    for pair in (part for text in pairs for part in text.split(",")):
        word, equals, level = pair.strip().partition("=")
        if not (word and equals and level):
            raise UsageError(f"--effort-map {pair!r} is not WORD=LEVEL. Type, say: --effort-map high=medium")
        known[word] = level
    return known
