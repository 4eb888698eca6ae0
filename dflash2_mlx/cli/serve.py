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
from dflash2_mlx.server.settings import Settings
from dflash2_mlx.store.hub import gigabytes

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
    max_queue: options.MaxQueue = 16,
    sse_keepalive: options.SseKeepAlive = "comment",
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
    settings = Settings(
        host=host,
        port=port,
        api_key=api_key or os.environ.get("DFLASH2_MLX_API_KEY") or None,
        cors_origins=tuple(cors_origin or ()),
        allowed_hosts=tuple(allowed_host or ()),
        max_context=max_context,
        max_queue=max_queue,
        block_size=read_block_size(block_size),
        keep_alive=sse_keepalive,  # type: ignore[arg-type]
        served_name=served_model_name,
        cache_bytes=read_gigabytes(prefix_cache_gb),
        effort_map=read_effort_map(effort_map or ()),
    )
    load = LoadParams(chosen_model(model), draft, draft_bits, draft_revision, not no_draft, require_draft)
    get_ready(load, max_context)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("dflash2_mlx").setLevel(log_level.upper())
    raise typer.Exit(_run(load, settings, Out(), open_page))


def _run(load: LoadParams, settings: Settings, out: Out, open_page: bool) -> int:
    from dflash2_mlx.server.run import serve as run
    from dflash2_mlx.server.served import open_engine

    out.note(f"dflash2-mlx: loading {load.model}")
    return run(lambda: open_engine(load, settings), settings, lambda listening: _begin(listening, out, open_page))


def _begin(listening: "Listening", out: Out, open_page: bool) -> None:
    import webbrowser  # of no use to any other command

    banner(listening, out)
    if open_page and not webbrowser.open(listening.url):
        out.note(f"warning      no browser could be opened; the page is at {listening.url}")


def banner(listening: "Listening", out: Out) -> None:
    """Where it is, what answers, whether it drafts, and a line to try."""
    served, settings = listening.served, listening.settings
    drafting = f"off: {served.speculation_off}" if served.speculation_off else "on"
    key = ' -H "Authorization: Bearer $DFLASH2_MLX_API_KEY"' if settings.api_key else ""
    body = f'{{"model": "{served.name}", "messages": [{{"role": "user", "content": "Who are you?"}}]}}'
    lines = [
        f"dflash2-mlx serves {listening.url}/v1 (OpenAI) and {listening.url} (Anthropic)",
        f"model        {served.name}, context {served.context} tokens",
        f"drafter      {served.draft_name or 'none'}",
        f"drafting     {drafting}; block size {served.block_size} ({served.block_size_reason})",
        f"memory       {gigabytes(served.weight_bytes)} of weights, {_kept(served.cache_bytes)}",
        f"key          {'needed' if settings.api_key else 'none'}",
        f"try          curl {listening.url}/v1/chat/completions{key} -d '{body}'",
    ]
    for line in [*lines, *(f"warning      {warning}" for warning in served.warnings)]:
        out.note(line)


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
