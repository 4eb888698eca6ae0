"""Bodies of every shape: an answer or a refusal, never a 5xx, never a hang, always in the route's envelope."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asking import CHAT, COMPLETIONS, MESSAGES, RESPONSES, TOOLS, Client
from scripted import ScriptedSession, state

ROUTES = (CHAT, COMPLETIONS, MESSAGES, f"{MESSAGES}/count_tokens", RESPONSES, "/v1/conversations")
FUZZ = {"deadline": None, "suppress_health_check": list(HealthCheck)}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["user", "assistant", "tool", "system", "developer", "auto", "none", "required", "function"]),
    st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "message", "function_call", "enabled"]),
)
KEYS = st.one_of(
    st.sampled_from(["role", "content", "type", "text", "name", "id", "function", "arguments", "tool_calls", "input"]),
    st.sampled_from(["parameters", "input_schema", "budget_tokens", "effort", "output", "call_id", "properties"]),
    st.text(max_size=6),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking"])},
    optional={
        **dict.fromkeys(("input", "content"), VALUES),
        **dict.fromkeys(("thinking", "tool_use_id", "id", "is_error"), SCALARS),
        "text": st.text(max_size=9),
        "name": st.just("weather"),
    },
)
CALL = st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": st.just("weather"), "arguments": SCALARS})})
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "tool", "system"]),
        "content": st.one_of(SCALARS, st.lists(PART, max_size=3)),
    },
    optional={"tool_calls": st.lists(CALL, max_size=2), "reasoning_content": SCALARS, "name": SCALARS},
)
ITEM = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            [
                *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call"),
                *("shell_call_output", "tool_search_output", "additional_tools", "item_reference", "web_search_call"),
            ]
        )
    },
    optional={
        **dict.fromkeys(("arguments", "output", "tools", "content", "input", "action"), VALUES),
        **dict.fromkeys(("id", "call_id", "namespace", "status"), SCALARS),
        "tools": st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=2),
        "role": st.sampled_from(["user", "assistant"]),
        "name": st.one_of(SCALARS, st.just("weather")),
    },
)
FIELDS = (
    *("previous_response_id", "conversation", "store", "thread", "items", "continue_final_message"),
    *("model", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "stop", "max_tokens", "n"),
    *("max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"),
    *("chat_template_kwargs", "enable_thinking", "modalities", "user", "metadata", "functions", "echo", "suffix"),
    *("system", "stop_sequences", "thinking", "output_config", "instructions", "reasoning", "text", "truncation"),
)
BODY = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(FIELDS, VALUES),
        "messages": st.one_of(VALUES, st.lists(MESSAGE, max_size=4)),
        "input": st.one_of(VALUES, st.lists(st.one_of(MESSAGE, ITEM), max_size=4)),
        "prompt": VALUES,
        "max_tokens": st.one_of(VALUES, st.integers(0, 9)),
        "tools": st.one_of(VALUES, st.just(TOOLS)),
    },
)


@pytest.fixture(scope="module")
def client(wrapper):
    model = state(ScriptedSession(wrapper, text="I think.\n</think>\n\nHello."))
    yield Client(model)
    assert (model.worker.active, model.worker.waiting, model.open) == (0, 0, 0)
    model.worker.stop()
    model.renderer.shutdown()
    assert model.worker.join(5)


def check(client: Client, path: str, content: bytes) -> int:
    reply = client.request("POST", path, content=content)
    assert reply.status_code in (200, 400, 404), (reply.status_code, reply.text)
    if reply.status_code != 200:
        document = reply.json()
        assert document["error"]["message"] and (document.get("type") == "error") == path.startswith(MESSAGES)
    elif reply.headers["content-type"] == "application/json":
        reply.json()
    else:
        assert reply.text.rstrip().endswith(("[DONE]", "}")) and '"error":{' not in reply.text
    return reply.status_code


@settings(max_examples=30, **FUZZ)
@given(path=st.sampled_from(ROUTES), body=BODY)
def test_any_fields(client, path, body):
    check(client, path, json.dumps(body).encode())


@settings(max_examples=30, **FUZZ)
@given(path=st.sampled_from(ROUTES), name=st.sampled_from(FIELDS), value=VALUES)
def test_one_odd_field_in_a_good_body(client, path, name, value):
    messages = [{"role": "user", "content": "hi"}]
    good = {"messages": messages, "input": "hi", "max_tokens": 9, "prompt": "hi"}
    good.pop("prompt" if path == RESPONSES else "nothing", None)
    check(client, path, json.dumps({**good, name: value}).encode())


@settings(max_examples=30, **FUZZ)
@given(path=st.sampled_from(ROUTES), messages=st.lists(st.one_of(MESSAGE, ITEM), max_size=5))
def test_any_conversation(client, path, messages):
    body = {"messages": messages, "max_tokens": 9, "input": messages, "tools": []}
    check(client, path, json.dumps(body).encode())


@settings(max_examples=30, **FUZZ)
@given(path=st.sampled_from(ROUTES), content=st.binary(max_size=40))
def test_any_bytes(client, path, content):
    assert check(client, path, content) == 400


@pytest.mark.slow
@settings(max_examples=3000, **FUZZ)
@given(path=st.sampled_from(ROUTES), body=BODY)
def test_any_fields_at_length(client, path, body):
    check(client, path, json.dumps(body).encode())


@pytest.mark.slow
@settings(max_examples=3000, **FUZZ)
@given(path=st.sampled_from(ROUTES), messages=st.lists(st.one_of(MESSAGE, ITEM), max_size=5))
def test_any_conversation_at_length(client, path, messages):
    body = {"messages": messages, "max_tokens": 9, "input": messages}
    check(client, path, json.dumps(body).encode())
