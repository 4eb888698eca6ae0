"""Responses without memory: items both ways, and what Codex sends."""

import pytest

from asking import RESPONSES, TOOLS, events
from outputs import ONE

FLAT = [{"type": "function", "strict": False, **TOOLS[0]["function"]}]


@pytest.fixture
def ask(client, session):
    session.text = "I think.\n</think>\n\nHello there."

    def ask(given="Who are you?", **fields):
        reply = client.post(RESPONSES, {"input": given, **fields})
        assert reply.status_code == 200, reply.text
        return session.requests[-1], reply.json()

    return ask


def test_a_response_has_reasoning_and_a_message_with_usage(ask):
    _, response = ask()
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["output"][1]["content"][0]["text"] == "Hello there." and response["status"] == "completed"
    usage = response["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
    assert (
        usage["output_tokens_details"]["reasoning_tokens"] > 0 and usage["input_tokens_details"]["cached_tokens"] == 0
    )


def test_a_round_trip_of_tools(ask, session):
    session.text = "I look.\n</think>\n\n" + ONE
    _, response = ask(tools=FLAT, instructions="Be brief.")
    call = response["output"][-1]
    assert call["type"] == "function_call" and call["arguments"] == '{"city": "Paris", "days": 3}'
    given = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Mind this."}]},
        {"role": "user", "content": "Weather?"},
        *response["output"],
        {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"},
    ]
    session.text = "</think>\n\nSunny."
    text = session.tokenizer.decode(list(ask(given, tools=FLAT, instructions="Be brief.")[0].prompt.tokens))
    assert "Be brief.\n\nMind this.<|im_end|>" in text and "<think>\nI look.\n</think>" in text
    assert "<function=weather>" in text and "<tool_response>\nsunny\n</tool_response>" in text
    assert text.count("<|im_start|>assistant") == 2, "reasoning and call are one turn"


def test_the_limit_ends_it_as_incomplete(ask):
    _, response = ask(max_output_tokens=2)
    assert response["status"] == "incomplete" and response["incomplete_details"] == {"reason": "max_output_tokens"}


def test_what_codex_sends_is_taken_and_what_is_not_used_is_named(client, session):
    session.text = "</think>\n\nHi."
    body = {
        "model": "scripted",
        "instructions": "You are a coding agent.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "tools": [*FLAT, {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "text": {"verbosity": "low"},
    }
    reply = client.post(RESPONSES, body)
    assert reply.status_code == 200, reply.text
    named = reply.headers["X-DFlash2-Ignored-Params"].split(", ")
    assert named == [
        *("include", "prompt_cache_key", "reasoning.summary", "text.verbosity"),
        *("tools[1].web_search", "tools[2].custom"),
    ]
    assert events(reply.text)[-1][0] == "response.completed"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"truncation": "always"}, "truncation"),
        ({"previous_response_id": "a", "conversation": "b"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"reasoning": {"effort": "zeal"}}, "reasoning.effort"),
        ({"reasoning": {"effort": 3}}, "reasoning"),
        ({"input": "word " * 18_000}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input"),
        ({"input": [{"role": "system", "content": "no user turn"}]}, "input"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_output_tokens": "x"}, "max_output_tokens"),
        ({"input": None}, "input"),
        ({"input": [{"type": "unheard_of", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(client, fields, param):
    reply = client.post(RESPONSES, {"input": "hi", **fields})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == param


def test_signs_of_life_are_events_not_comments(client, session):
    session.text = "</think>\n\nHi."
    text = client.post(RESPONSES, {"input": "hi", "stream": True}).text
    names = [name for name, _ in events(text)]
    assert names[:3] == ["response.created", "response.in_progress", "response.in_progress"] and ": " not in text[:2]
    assert "[DONE]" not in text


def test_a_failure_is_a_failed_response(client, session):
    session.text, session.fail_after = "</think>\n\nHello there.", 1
    name, data = events(client.post(RESPONSES, {"input": "hi", "stream": True}).text)[-1]
    assert name == "response.failed" and data["response"]["error"]["code"] == "internal_error"
