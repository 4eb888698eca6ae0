"""A thousand mixed requests on the bundled pair, four at a time: every reply is well formed and nothing grows."""

import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from asking import CHAT, COMPLETIONS, MESSAGES, RESPONSES, events
from dflash2_mlx.server.settings import ServeSettings
from live import demo_state, running, send, wait_for

REQUESTS, CLIENTS = 1000, 4
KEPT = 8 * 2**20


@pytest.fixture(scope="module")
def model():
    with demo_state(ServeSettings(cache_bytes=KEPT)) as state, running(state) as url:
        yield state, url


QUESTIONS = ("Who are you?", "What is speculative decoding?", "weather Paris", "Tell me a story about a fox.", "漢字?")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def conversation(chance: random.Random) -> list[dict]:
    turns = [{"role": "system", "content": "Be brief. " * chance.randrange(20)}] if chance.random() < 0.5 else []
    for _ in range(chance.randrange(3)):
        turns.append({"role": "user", "content": chance.choice(QUESTIONS)})
        turns.append({"role": "assistant", "content": "I see. " * chance.randrange(1, 9)})
    return [*turns, {"role": "user", "content": chance.choice(QUESTIONS)}]


def body_for(path: str, chance: random.Random) -> dict:
    body: dict = {"stream": chance.random() < 0.5, "seed": chance.randrange(9), "temperature": chance.choice([0, 1])}
    most = chance.randrange(1, 24)
    messages = conversation(chance)
    if path == COMPLETIONS:
        return {**body, "prompt": chance.choice(QUESTIONS), "max_tokens": most, "logprobs": chance.choice([None, 2])}
    if path == RESPONSES:
        return {**body, "input": messages, "max_output_tokens": most}
    if path == MESSAGES:
        system = [turn["content"] for turn in messages if turn["role"] == "system"]
        turns = [turn for turn in messages if turn["role"] != "system"]
        return {**body, "system": "".join(system), "messages": turns, "max_tokens": most}
    odd = chance.choice([{}, {}, {}, {"logprobs": True, "top_logprobs": 3}, {"presence_penalty": 1.0}, {"n": 2}])
    return {**body, "messages": messages, "max_tokens": most, "stop": chance.choice([None, ["the"]]), **odd}


def check(path: str, body: dict, reply: httpx.Response) -> None:
    """The reply is of its route's shape, with numbers that add up."""
    if reply.status_code != 200:
        assert reply.status_code in (400, 503) and reply.json()["error"]["message"]
        return
    most = body.get("max_tokens", body.get("max_output_tokens"))
    if body["stream"]:
        found = [data for _, data in events(reply.text)]
        assert not any("error" in data and data["error"] for data in found)
        if path in (CHAT, COMPLETIONS):
            reasons = [choice["finish_reason"] for data in found for choice in data["choices"]]
            assert reasons[-1] in ("stop", "length", "tool_calls") and set(reasons[:-1]) <= {None}
            assert 0 < found[-1]["timings"]["predicted_n"] <= most
        else:
            assert found[-1]["type"] in ("message_stop", "response.completed", "response.incomplete")
        return
    document = reply.json()
    usage = document["usage"]
    written = usage.get("completion_tokens", usage.get("output_tokens"))
    assert 0 < written <= most
    if path == CHAT:
        (choice,) = document["choices"]
        assert choice["message"]["role"] == "assistant" and choice["finish_reason"] in ("stop", "length")
    assert document["dflash"]["fallback_reason"] is None


def ask(url: str, number: int) -> int:
    """One request by its number; every tenth client leaves early."""
    chance = random.Random(number)
    path = (CHAT, COMPLETIONS, MESSAGES, RESPONSES)[number % 4]
    body = body_for(path, chance)
    if number % 10 == 0:
        connection = send(url, path, body)
        if chance.random() < 0.5:
            connection.recv(1)
        connection.close()
        return 0
    reply = httpx.post(url + path, content=json.dumps(body), timeout=60)
    check(path, body, reply)
    return reply.status_code


@pytest.mark.slow
def test_a_thousand_mixed_requests(model, capsys):
    state, url = model
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(lambda number: ask(url, number), range(100)))
        wait_for(lambda: state.open == 0 and state.worker.active == 0)
        sizes, threads, statuses = [resident_bytes()], threading.active_count(), Counter[int]()
        for start in range(100, 100 + REQUESTS, 200):
            statuses.update(clients.map(lambda number: ask(url, number), range(start, start + 200)))
            wait_for(lambda: state.open == 0 and state.worker.active == 0)
            sizes.append(resident_bytes())
        assert threading.active_count() == threads
    status = httpx.get(f"{url}/api/status").json()
    with capsys.disabled():
        print(
            f"\n{REQUESTS} requests: statuses {dict(statuses)}, resident MiB {[size // 2**20 for size in sizes]}, "
            f"{threads} threads, {status['prefix_cache_entries']} prefixes, {status['prefix_cache_bytes'] >> 20} MiB, "
            f"cache efficiency {status['cache_efficiency']:.2f}, {status['avg_generation_tps']:.0f} tok/s"
        )
    assert set(statuses) <= {0, 200, 400} and statuses[200] > 0.8 * REQUESTS
    assert (status["active_requests"], status["waiting_requests"], status["open_requests"]) == (0, 0, 0)
    assert status["prefix_cache_bytes"] <= KEPT * 1.5
    assert sizes[-1] - sizes[0] < 64 * 2**20 and sizes[-1] - sizes[-2] < 16 * 2**20
    assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.slow
def test_eight_clients_in_parallel_get_what_each_would_get_alone(model):
    _, url = model

    def text(number: int) -> str:
        body = {"messages": [{"role": "user", "content": QUESTIONS[number % 5]}], "temperature": number % 2}
        body.update(seed=number, max_tokens=60, logit_bias={"300": number})
        return json.dumps(httpx.post(url + CHAT, json=body, timeout=60).json()["choices"])

    alone = [text(number) for number in range(8)]
    with ThreadPoolExecutor(8) as clients:
        together = list(clients.map(text, range(8)))
    assert together == alone
