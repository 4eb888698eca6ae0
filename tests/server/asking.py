"""Talks to a server in this process, and reads streams as a client would. Shares no code with the server."""

import asyncio
import json
from collections.abc import Iterable, Mapping

import httpx

from dflash2_mlx.server.app import build_app
from dflash2_mlx.server.state import ServerState

USER = [{"role": "user", "content": "Who are you?"}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]


class Client:
    """Requests to the app around `state`, each on an event loop of its own."""

    def __init__(self, state: ServerState) -> None:
        self.state, self.app = state, build_app(state)

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def get(self, path: str, **options: object) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: object, **options: object) -> httpx.Response:
        return self.request("POST", path, json=body, **options)

    def chat(self, **fields: object) -> httpx.Response:
        return self.post(CHAT, {"messages": USER, **fields})

    def stream(self, path: str, body: Mapping[str, object]) -> list[tuple[str | None, dict]]:
        """The events of a streamed answer, `[DONE]` checked and left out."""
        reply = self.post(path, {**body, "stream": True})
        assert reply.status_code == 200, reply.text
        return events(reply.text)


def events(text: str) -> list[tuple[str | None, dict]]:
    """Name and document of every event of a stream."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert len(lines) == len(names) + len(data) and len(data) <= 1 and len(names) <= len(data)
        if data and data[0] != "[DONE]":
            found.append((names[0] if names else None, json.loads(data[0])))
    return found


def fold_chat(chunks: Iterable[dict]) -> dict:
    """What a chat client makes of the chunks: the message, the reason, log probabilities, usage."""
    message: dict = {"role": None, "content": None, "reasoning_content": None, "tool_calls": {}}
    reasons, entries, usage = [], [], None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if "role" in delta:
                assert message["role"] is None, "the role comes once"
                message["role"] = delta["role"]
            for key in ("content", "reasoning_content"):
                if delta.get(key) is not None:
                    assert key == "content" or not message["content"], "reasoning comes before content"
                    message[key] = (message[key] or "") + delta[key]
            for call in delta.get("tool_calls", ()):
                known = message["tool_calls"].setdefault(call["index"], {"arguments": ""})
                known.update({key: call[key] for key in ("id", "type") if key in call})
                known.update({"name": call["function"]["name"]} if "name" in call["function"] else {})
                known["arguments"] += call["function"].get("arguments", "")
            entries += (choice["logprobs"] or {}).get("content", [])
            reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert len(reasons) == 1, reasons
    assert sorted(message["tool_calls"]) == list(range(len(message["tool_calls"])))
    return {"message": message, "finish_reason": reasons[0], "logprobs": entries, "usage": usage}


def plain_chat(reply: dict) -> dict:
    """A whole reply in the shape of `fold_chat`."""
    (choice,) = reply["choices"]
    calls = {
        index: {"id": call["id"], "type": call["type"], **call["function"]}
        for index, call in enumerate(choice["message"].get("tool_calls", ()))
    }
    message = {
        "role": choice["message"]["role"],
        "content": choice["message"]["content"] or "",
        "reasoning_content": choice["message"].get("reasoning_content"),
        "tool_calls": calls,
    }
    entries = (choice["logprobs"] or {}).get("content", [])
    return {
        "message": message,
        "finish_reason": choice["finish_reason"],
        "logprobs": entries,
        "usage": reply["usage"],
    }


def fold_messages(found: Iterable[tuple[str | None, dict]]) -> dict:
    """What an Anthropic client makes of the events."""
    message: dict = {}
    blocks: list[dict] = []
    opened: int | None = None
    for name, data in found:
        assert name == data["type"]
        if name == "message_start":
            assert not message
            message = data["message"]
        assert message, "message_start comes first"
        if name == "content_block_start":
            assert opened is None and data["index"] == len(blocks), "indexes are contiguous"
            opened = data["index"]
            blocks.append({**data["content_block"], "json": ""})
        elif name == "content_block_delta":
            assert data["index"] == opened
            delta = dict(data["delta"])
            kind = delta.pop("type")
            ((key, value),) = delta.items()
            target = "json" if kind == "input_json_delta" else key
            blocks[-1][target] += value
        elif name == "content_block_stop":
            assert data["index"] == opened
            opened = None
        elif name == "message_delta":
            message = {**message, **data["delta"], "usage": data["usage"]}
    assert opened is None and name == "message_stop"
    for block in blocks:
        arguments = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(arguments)
    return {**message, "content": blocks}
