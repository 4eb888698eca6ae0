"""`bench load`: 1, 2, 4, ... clients at once against a server that speaks OpenAI's interface. Knows HTTP, no pair."""

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from httpx2 import Client

from dflash2_mlx.bench.chat_client import Endpoint, Reply, ask, client_of
from dflash2_mlx.bench.environment import Environment
from dflash2_mlx.bench.facts import about, facts
from dflash2_mlx.bench.numbers import Percentiles, percentiles, shares_of, short
from dflash2_mlx.bench.report import Chart, Report, Section, Series, Share, Table
from dflash2_mlx.errors import LaunchError

KIND, VERSION = "dflash2-mlx bench load", 1


@dataclass(frozen=True, slots=True)
class Level:
    """All replies at one number of clients. throughput: completion tokens a second of all clients together.

    cached: share of the prompt tokens that the server says it had already; None where it does not say.
    """

    clients: int
    requests: int
    failed: int
    seconds: float
    tokens: int
    cached: float | None
    throughput: float
    first_s: Percentiles | None
    gap_s: Percentiles | None
    token_s: Percentiles | None
    total_s: Percentiles | None
    errors: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoadDocument:
    """Everything of one load test."""

    kind: str
    version: int
    environment: Environment
    base_url: str
    model: str
    max_tokens: int
    levels: tuple[Level, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What every client asks, in turn, so many requests each. repeat_prompts: as they are, again and again."""

    endpoint: Endpoint
    prompts: Sequence[str]
    max_tokens: int
    requests: int
    temperature: float
    repeat_prompts: bool = False


def run_level(plan: LoadPlan, clients: int) -> Level:
    """`clients` threads, each asking one request after the other."""
    replies: list[Reply] = []
    with client_of(plan.endpoint) as client:
        threads = [
            threading.Thread(target=_client, args=(plan, number, replies, client), daemon=True)  # Ctrl-C waits for none
            for number in range(clients)
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return summed_up(clients, replies, time.perf_counter() - began)


def _client(plan: LoadPlan, number: int, replies: list[Reply], client: Client) -> None:
    for turn in range(plan.requests):
        prompt = plan.prompts[(number + turn) % len(plan.prompts)]
        if not plan.repeat_prompts:  # at the front, so that no server has the text's beginning kept from earlier
            prompt = f"[{secrets.token_hex(4)}] {prompt}"
        body = {
            "model": plan.endpoint.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": plan.max_tokens,
            "temperature": plan.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        replies.append(ask(client, body))


def summed_up(clients: int, replies: Sequence[Reply], seconds: float) -> Level:
    """The level's figures; failed requests count as errors and nowhere else."""
    good = [reply for reply in replies if reply.error is None]
    tokens = sum(reply.tokens for reply in good)
    per_token = [
        (reply.total_s - reply.first_s) / (reply.tokens - 1)
        for reply in good
        if reply.first_s is not None and reply.tokens > 1
    ]
    return Level(
        clients,
        len(replies),
        len(replies) - len(good),
        seconds,
        tokens,
        _cached(good),
        tokens / seconds if seconds > 0 else 0.0,
        percentiles([reply.first_s for reply in good if reply.first_s is not None]),
        percentiles([gap for reply in good for gap in reply.gaps_s]),
        percentiles(per_token),
        percentiles([reply.total_s for reply in good]),
        dict(Counter(reply.error for reply in replies if reply.error is not None)),
    )


def _cached(replies: Sequence[Reply]) -> float | None:
    told = [reply for reply in replies if reply.cached_tokens is not None and reply.prompt_tokens]
    return sum(r.cached_tokens or 0 for r in told) / sum(r.prompt_tokens for r in told) if told else None


def run_load(plan: LoadPlan, clients: Sequence[int], note: Callable[[str], None]) -> Iterator[Level]:
    """One request alone as a warm-up, then every level in turn. Raises: LaunchError where the warm-up fails."""
    for error in run_level(replace(plan, requests=1), 1).errors:
        raise LaunchError(
            f"{plan.endpoint.base_url} did not answer a first request: {error}. Check --base-url, --model and "
            "--api-key, and what the server prints."
        )
    for count in clients:
        level = run_level(plan, count)
        note(f"{count:>4} clients  {short(level.throughput)} tok/s, {level.failed} failed")
        yield level


def load_report(document: LoadDocument) -> Report:
    """The report of a load test."""
    levels = document.levels
    shares = (f"{kind} {share}" for kind in ("first", "gap") for share in ("p50", "p95", "p99"))
    columns = ("clients", "requests", "failed", "cached", "tok/s", *shares, "token p50")
    rows = tuple(
        (
            v.clients,
            v.requests,
            v.failed,
            Share(v.cached) if v.cached is not None else None,
            v.throughput,
            *shares_of(v.first_s),
            *shares_of(v.gap_s),
            shares_of(v.token_s)[0],
        )
        for v in levels
    )
    x = tuple(float(level.clients) for level in levels)
    throughput = Chart(
        "lines", "Throughput against clients", "clients at once", "tok/s of all together",
        (Series("tok/s", x, tuple(level.throughput for level in levels)),), log=True,
    )  # fmt: skip
    charts = (
        throughput,
        _latency_chart("Time to the first token", [level.first_s for level in levels], x),
        _latency_chart("Gap between pieces of text", [level.gap_s for level in levels], x),
    )
    errors = Counter[str]()
    for level in levels:
        errors.update(level.errors)
    words = (
        "Times in seconds. gap: between two pieces of text, which may hold several tokens; token: the time after the "
        "first piece, divided by the tokens after the first.",
        *(f"{count} times: {error}" for error, count in errors.most_common()),
    )
    section = Section("load", "Clients at once", words, Table(columns, rows), charts)
    settings = (
        ("server", document.base_url), ("model there", document.model), ("tokens at most", str(document.max_tokens))
    )  # fmt: skip
    return Report(
        "dflash2-mlx bench load", tuple(_verdict(document)), (section,), facts(document.environment, settings),
        about(document.environment, f"{document.model} at {document.base_url}"),
    )  # fmt: skip


def _verdict(document: LoadDocument) -> list[str]:
    levels = document.levels
    failed, total = sum(level.failed for level in levels), sum(level.requests for level in levels)
    best = max(levels, key=lambda level: level.throughput)
    first = levels[0]
    lines = [
        f"{short(first.throughput)} tok/s with {first.clients} client{'' if first.clients == 1 else 's'}; the most is "
        f"{short(best.throughput)} tok/s with {best.clients}."
    ]
    lines.append(f"{failed} of {total} requests FAILED." if failed else f"All {total} requests were answered in full.")
    return lines


def _latency_chart(title: str, found: Sequence[Percentiles | None], x: tuple[float, ...]) -> Chart:
    series = []
    for name in ("p50", "p95", "p99"):
        points = [
            (place, float(value))
            for place, entry in zip(x, found, strict=True)
            if entry and (value := getattr(entry, name)) is not None
        ]
        series.append(Series(name, tuple(p for p, _ in points), tuple(y for _, y in points)))
    return Chart("lines", title, "clients at once", "seconds", tuple(series), log=True)
