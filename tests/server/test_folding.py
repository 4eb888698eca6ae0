"""Whatever the model writes, a client that folds the stream has what the whole reply says, in every dialect."""

import pytest

from asking import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    TOOLS,
    USER,
    Client,
    fold_chat,
    fold_messages,
    plain_chat,
)
from outputs import OUTPUTS

FLAT_TOOLS = [{"type": "function", **TOOLS[0]["function"]}]
ANTHROPIC_TOOLS = [{"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"]}]
CLOCKED = ("usage", "timings", "dflash")

# every fifth of the scripted outputs at once, all of them in the slow suite
NUMBERS = [pytest.param(n, marks=() if n % 5 == 0 else pytest.mark.slow) for n in range(50)]


def counted(usage: dict) -> dict:
    """Usage without its durations and rates."""
    return {key: value for key, value in usage.items() if not isinstance(value, float)}


def without_ids(value: object) -> object:
    """The value with what differs from request to request left out."""
    if isinstance(value, dict):
        fresh = ("id", "item_id", "call_id", "created_at", "created", "sequence_number")
        return {key: without_ids(item) for key, item in value.items() if key not in (*fresh, *CLOCKED)}
    return [without_ids(item) for item in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def client(wrapper):
    import scripted

    state = scripted.state(scripted.ScriptedSession(wrapper))
    yield Client(state)
    state.worker.stop()
    state.renderer.shutdown()
    assert state.worker.join(5)


@pytest.fixture(autouse=True)
def _setup(client):
    client.session = client.state.worker.opened.session


@pytest.mark.parametrize("number", NUMBERS)
def test_chat(client, number):
    client.session.text, client.session.round_size = OUTPUTS[number], 1 + number % 8
    body = {"messages": USER, "tools": TOOLS, "stop": ["STOP"], "logprobs": True, "top_logprobs": 2}
    chunks = [data for _, data in client.stream(CHAT, {**body, "stream_options": {"include_usage": True}})]
    folded, whole = fold_chat(chunks), plain_chat(client.post(CHAT, body).json())
    assert counted(folded.pop("usage")) == counted(whole.pop("usage"))
    assert without_ids(folded) == without_ids(whole)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""} and chunks[-1]["choices"] == []
    assert "STOP" not in str(folded["message"])


@pytest.mark.parametrize("number", NUMBERS)
def test_messages(client, number):
    client.session.text, client.session.round_size = OUTPUTS[number], 1 + number % 8
    thinking = {"type": "adaptive"}
    body = {"messages": USER, "tools": ANTHROPIC_TOOLS, "max_tokens": 999, "thinking": thinking}
    body["stop_sequences"] = ["STOP"]
    folded, whole = fold_messages(client.stream(MESSAGES, body)), client.post(MESSAGES, body).json()
    assert counted(folded["usage"]) == counted(whole["usage"])
    assert without_ids(folded) == without_ids(whole)
    assert "STOP" not in str(folded["content"])
    if "then STOP" in OUTPUTS[number]:
        assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "STOP")


@pytest.mark.parametrize("number", NUMBERS)
def test_responses(client, number):
    client.session.text, client.session.round_size = OUTPUTS[number], 1 + number % 8
    body = {"input": "Who are you?", "tools": FLAT_TOOLS}
    found, whole = client.stream(RESPONSES, body), client.post(RESPONSES, body).json()
    assert [data["sequence_number"] for _, data in found] == list(range(len(found)))
    assert [name for name, _ in found[:2]] == ["response.created", "response.in_progress"]
    items: dict[int, dict] = {}
    for name, data in found:
        assert name == data["type"]
        if name == "response.output_item.added":
            items[data["output_index"]] = {"said": "", "id": data["item"]["id"]}
        if name.endswith(".delta"):
            assert items[data["output_index"]]["id"] == data["item_id"]
            items[data["output_index"]]["said"] += data["delta"]
        if name == "response.output_item.done":
            item = data["item"]
            said = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
            assert items[data["output_index"]]["said"] == said
            items[data["output_index"]] = item
    last = found[-1][1]["response"]
    assert [items[index] for index in range(len(items))] == last["output"]
    assert without_ids(last) == without_ids(whole) and last["status"] == "completed"
    assert counted(last["usage"]) == counted(whole["usage"])


@pytest.mark.parametrize("number", NUMBERS)
def test_completions(client, number):
    client.session.text, client.session.round_size = OUTPUTS[number], 1 + number % 8
    body = {"prompt": "Once", "stop": "STOP", "logprobs": 2}
    chunks = [data for _, data in client.stream(COMPLETIONS, {**body, "stream_options": {"include_usage": True}})]
    (choice,) = client.post(COMPLETIONS, body).json()["choices"]
    parts = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(part["text"] for part in parts) == choice["text"]
    assert [part["finish_reason"] for part in parts if part["finish_reason"]] == [choice["finish_reason"]]
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        pieces = [part["logprobs"][key] for part in parts if part["logprobs"]]
        assert [entry for piece in pieces for entry in piece] == choice["logprobs"][key]
