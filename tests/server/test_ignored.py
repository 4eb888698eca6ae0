"""What nobody reads is named with its place, however deep it stands, on every route."""

import pytest

from asking import CHAT, COMPLETIONS, MESSAGES, RESPONSES, TOOLS, USER

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "odd": 1}}
TEXT = {"type": "text", "text": "hi", "odd": 1}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [TEXT]}


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (CHAT, {"stream_options": {"include_obfuscation": False}}, "stream_options.include_obfuscation"),
        (CHAT, {"messages": [{**USER[0], "junk": 1}]}, "messages[].junk"),
        (CHAT, {"messages": [{"role": "user", "content": [TEXT, TEXT]}]}, "messages[].content[].odd"),
        (
            CHAT,
            {"messages": [*USER, {"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": "x"}]},
            "messages[].tool_calls[].function.odd",
        ),
        (CHAT, {"user": "me", "store": True}, "user, store"),
        (CHAT, {"unheard_of": None, "empty": []}, None),
        (COMPLETIONS, {"stream_options": {"odd": 1}, "user": "me"}, "user, stream_options.odd"),
        (MESSAGES, {"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"),
        (MESSAGES, {"output_config": {"effort": "low", "odd": 1}}, "output_config.odd"),
        (MESSAGES, {"tool_choice": {"type": "auto", "odd": 1}}, "tool_choice.odd"),
        (MESSAGES, {"tools": [{"name": "f", "input_schema": {}, "defer_loading": True}]}, "tools[].defer_loading"),
        (MESSAGES, {"messages": [{**USER[0], "junk": 1}]}, "messages[].junk"),
        (MESSAGES, {"system": [TEXT]}, "system[].odd"),
        (
            MESSAGES,
            {"messages": [*USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]},
            "messages[].content[].content[].odd",
        ),
        (RESPONSES, {"text": {"verbosity": "low"}}, "text.verbosity"),
        (RESPONSES, {"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        (RESPONSES, {"input": [{**USER[0], "phase": "x"}]}, "input[].phase"),
        (RESPONSES, {"tools": [{"type": "function", "name": "f", "defer_loading": True}]}, "tools[].defer_loading"),
        (RESPONSES, {"store": False, "truncation": "auto", "previous_response_id": None}, None),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_field_that_nobody_reads_is_named(client, session, path, body, named, stream):
    session.text = "</think>\n\nHi."
    required = {"messages": USER, "input": "hi", "prompt": "hi", "max_tokens": 9}
    kept = {CHAT: ["messages"], COMPLETIONS: ["prompt"], MESSAGES: ["messages", "max_tokens"], RESPONSES: ["input"]}
    reply = client.post(path, {**{key: required[key] for key in kept[path]}, **body, "stream": stream})
    assert reply.status_code == 200, reply.text
    assert reply.headers.get("X-DFlash2-Ignored-Params") == named


def test_what_our_own_replies_carry_is_no_junk_when_it_comes_back(client, session):
    session.text = "I think.\n</think>\n\nHi."
    message = client.chat(tools=TOOLS).json()["choices"][0]["message"]
    output = client.post(RESPONSES, {"input": "hi"}).json()["output"]
    content = client.post(MESSAGES, {"messages": USER, "max_tokens": 9}).json()["content"]
    assert "X-DFlash2-Ignored-Params" not in client.chat(messages=[*USER, message, *USER]).headers
    assert "X-DFlash2-Ignored-Params" not in client.post(RESPONSES, {"input": [*USER, *output, *USER]}).headers
    turns = [*USER, {"role": "assistant", "content": content}, *USER]
    assert "X-DFlash2-Ignored-Params" not in client.post(MESSAGES, {"messages": turns, "max_tokens": 9}).headers
