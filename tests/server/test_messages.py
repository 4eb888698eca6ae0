"""Anthropic's messages: blocks both ways, thinking and its budget, and the words of its errors."""

import pytest

from asking import MESSAGES, USER, events, fold_messages
from outputs import ONE

COUNT = f"{MESSAGES}/count_tokens"
SAID = "I think.\n</think>\n\nHello there."
TOOL = {"name": "weather", "description": "It knows.", "input_schema": {"type": "object", "properties": {}}}
ENABLED = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture
def ask(client, session):
    session.text = SAID

    def ask(messages=USER, max_tokens=1000, **fields):
        reply = client.post(MESSAGES, {"messages": messages, "max_tokens": max_tokens, **fields})
        assert reply.status_code == 200, reply.text
        return session.requests[-1], reply.json()

    return ask


def prompt_text(request, session) -> str:
    return session.tokenizer.decode(list(request.prompt.tokens))


def test_a_message_has_thinking_then_text(ask):
    _, message = ask(thinking={"type": "adaptive"})
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["content"][0]["thinking"] == "I think." and message["content"][0]["signature"]
    assert (message["role"], message["type"], message["stop_reason"]) == ("assistant", "message", "end_turn")
    usage = message["usage"]
    assert usage["cache_read_input_tokens"] == 0 and usage["output_tokens_details"]["thinking_tokens"] > 0


def test_nothing_said_of_thinking_means_none(ask, session):
    assert ask()[0].prompt.channel == "answer"
    assert ask(thinking={"type": "disabled"})[0].prompt == ask()[0].prompt
    assert ask(thinking=ENABLED)[0].prompt.channel == "reasoning"
    assert "Think briefly." in prompt_text(ask(output_config={"effort": "low"})[0], session)


def test_an_answer_goes_on_from_a_last_message_of_the_assistants(ask, session):
    session.text = "wer."
    request, message = ask([*USER, {"role": "assistant", "content": "The ans"}], thinking=ENABLED)
    assert prompt_text(request, session).endswith("</think>\n\nThe ans")
    assert message["content"] == [{"type": "text", "text": "wer."}]


def test_max_tokens_is_required_and_ends_with_its_reason(client, ask, session):
    reply = client.post(MESSAGES, {"messages": USER})
    assert reply.status_code == 400 and reply.json()["type"] == "error"
    assert reply.json()["error"]["type"] == "invalid_request_error" and "max_tokens" in reply.json()["error"]["message"]
    session.text = "one two three four"
    _, message = ask(max_tokens=2)
    assert message["stop_reason"] == "max_tokens" and message["usage"]["output_tokens"] == 2


def test_a_stop_sequence_is_named(ask, session):
    session.text = "one two three"
    _, message = ask(stop_sequences=["zzz", "two"])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "two")
    assert message["content"][0]["text"] == "one "


def test_the_system_prompt_is_text_or_blocks_and_the_billing_line_is_dropped(ask, session):
    plain = ask(system="Be brief.")[0].prompt.tokens
    assert ask(system=[{"type": "text", "text": "Be brief."}])[0].prompt.tokens == plain
    billed = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;"}]
    assert ask(system=[*billed, {"type": "text", "text": "Be brief."}])[0].prompt.tokens == plain
    assert ask(system="x-anthropic-billing-header: 42\nBe brief.")[0].prompt.tokens == plain
    assert ask(system=billed)[0].prompt.tokens == ask()[0].prompt.tokens


def test_tools_go_both_ways(ask, session):
    session.text = "Let me look.\n\n" + ONE
    _, message = ask(tools=[TOOL])
    assert message["stop_reason"] == "tool_use"
    text, call = message["content"]
    assert text["text"].startswith("Let me look.") and call["name"] == "weather"
    assert call["input"] == {"city": "Paris", "days": "3"} and call["id"].startswith("toolu_")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "sunny"}]}
    history = [
        *USER,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, text, call]},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]
    session.text = "Fine."
    shown = prompt_text(ask(history, tools=[TOOL])[0], session)
    assert "<tool_response>\nsunny\n</tool_response>" in shown and "And now?" in shown and "<think>\nhm" in shown
    assert "<function=weather>" in shown and "It knows." in shown


def test_a_failed_tool_says_so(ask, session):
    result = {"type": "tool_result", "tool_use_id": "t", "content": "no such file", "is_error": True}
    call = {"type": "tool_use", "id": "t", "name": "weather", "input": {}}
    history = [*USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    assert "Error: no such file" in prompt_text(ask(history)[0], session)


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": {"type": "any"}, "tools": [TOOL]},
        {"tool_choice": {"type": "tool", "name": "weather"}, "tools": [TOOL]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [{"description": "nameless"}]},
        {"thinking": {"type": "hard"}},
        {"thinking": {"type": "enabled", "budget_tokens": -5}},
        {"thinking": {"type": "enabled", "budget_tokens": "much"}},
        {"output_config": {"effort": "zeal"}},
        {"output_config": {"format": {"type": "json_schema"}}},
        {"mcp_servers": [{"url": "http://x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": []},
        {"system": [{"type": "image"}]},
        {"stop_sequences": [""]},
        {"max_tokens": -1},
        {"tools": [{"type": "computer_20250124", "name": "computer"}]},
        {"tools": [{"type": "bash_20250124"}]},
        {"temperature": 1000},
    ],
)
def test_what_is_not_honoured_is_refused_in_anthropic_s_envelope(client, fields):
    reply = client.post(MESSAGES, {"messages": USER, "max_tokens": 9, **fields})
    assert reply.status_code == 400, reply.text
    assert reply.json()["type"] == "error" and reply.json()["error"]["type"] == "invalid_request_error"


BASH = {"type": "bash_20250124", "name": "bash"}
CLIENT_TOOLS = [
    *({"type": f"bash_{day}", "name": "bash"} for day in ("20241022", "20250124")),
    *({"type": f"text_editor_{day}", "name": "str_replace_editor"} for day in ("20241022", "20250124")),
    *({"type": f"text_editor_{day}", "name": "str_replace_based_edit_tool"} for day in ("20250429", "20250728")),
    {"type": "memory_20250818", "name": "memory"},
]


@pytest.mark.parametrize("tool", CLIENT_TOOLS, ids=lambda tool: tool["type"])
def test_a_tool_that_clients_run_is_offered_with_its_published_schema(ask, tool):
    (offered,) = ask(tools=[tool])[0].text.tools
    function = offered["function"]
    properties = function["parameters"]["properties"]
    assert function["name"] == tool["name"] and function["description"] and "command" in properties
    assert set(function["parameters"]["required"]) <= set(properties)
    if "view" in properties["command"].get("enum", ()):
        inserted = "new_str" if tool["name"] == "str_replace_editor" else "insert_text"
        assert "insert" in properties[inserted]["description"] and "view_range" in properties
        assert ("undo_edit" in properties["command"]["enum"]) == (tool["name"] == "str_replace_editor")


def test_a_call_of_such_a_tool_comes_back_typed(ask, session):
    session.text = (
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n<parameter=restart>\nfalse\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    call = ask(tools=[BASH])[1]["content"][-1]
    assert (call["name"], call["input"]) == ("bash", {"command": "ls", "restart": False})


def test_a_thread_is_refused_in_the_words_that_make_clients_send_everything(client):
    for path in (MESSAGES, COUNT):
        reply = client.post(path, {"messages": USER, "max_tokens": 9, "thread": {"type": "create"}})
        assert reply.status_code == 400
        assert reply.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}


def test_what_a_tool_of_the_api_s_own_servers_did_is_passed_over_and_named(client, session):
    session.text = "Fine."
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "text", "text": "I searched.", "citations": [{"url": "x"}]},
    ]
    history = [*USER, {"role": "assistant", "content": blocks}, *USER]
    reply = client.post(MESSAGES, {"messages": history, "max_tokens": 9})
    assert reply.status_code == 200 and "I searched." in prompt_text(session.requests[-1], session)
    assert reply.headers["X-DFlash2-Ignored-Params"] == (
        "messages[].content[].server_tool_use, messages[].content[].web_search_tool_result"
    )


def test_harmless_fields_are_listed_as_ignored(client, session):
    session.text = "Hi."
    content = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 9, "metadata": {"user_id": "u"}}
    reply = client.post(f"{MESSAGES}?beta=true", body)
    assert reply.status_code == 200 and reply.headers["X-DFlash2-Ignored-Params"] == "metadata, cache_control"


def test_a_stream_begins_with_the_message_and_a_ping(client, session):
    session.text = SAID
    found = events(client.post(MESSAGES, {"messages": USER, "max_tokens": 99, "stream": True}).text)
    assert [name for name, _ in found[:2]] == ["message_start", "ping"]
    assert found[0][1]["message"]["usage"]["input_tokens"] > 0 and found[-1][0] == "message_stop"


def test_a_failure_in_mid_stream_is_an_error_event(client, session):
    session.text, session.fail_after = SAID, 1
    found = events(client.post(MESSAGES, {"messages": USER, "max_tokens": 99, "stream": True}).text)
    assert found[-1][0] == "error" and found[-1][1]["error"]["type"] == "api_error"


def test_tokens_are_counted_as_they_would_be_used(client, ask):
    fields = {"system": "Be brief.", "tools": [TOOL], "thinking": ENABLED}
    request, _ = ask(**fields)
    counted = client.post(COUNT, {"messages": USER, **fields})
    assert counted.json() == {"input_tokens": len(request.prompt.tokens)}
    assert client.post(COUNT, {"messages": []}).json()["type"] == "error"


def test_a_budget_of_thinking_is_kept(ask, session):
    thought = "one two three four five six seven eight nine ten"
    session.text = lambda request: (
        "So be it." if request.prompt.channel == "answer" else thought + "\n</think>\n\nMy own end."
    )
    whole = len(session.tokenizer.encode(thought + "\n</think>", add_special_tokens=False))
    for budget in range(1, whole + 3):
        _, message = ask(thinking={"type": "enabled", "budget_tokens": budget}, max_tokens=500)
        *thinking, text = message["content"]
        spent = message["usage"]["output_tokens_details"]["thinking_tokens"]
        assert spent <= budget, (spent, budget)
        assert text["text"] == ("My own end." if budget >= whole else "So be it.")
        if budget < whole:
            said = thinking[0]["thinking"] if thinking else ""
            assert thought.startswith(said) and spent > budget - session.round_size
            first, second = session.requests[-2:]
            closing = session.tokenizer.decode(list(second.prompt.tokens[len(first.prompt.tokens) + spent :]))
            assert closing == "\n</think>\n\n"
            assert second.engine.max_tokens == 500 - spent
        assert message["stop_reason"] == "end_turn" and message["usage"]["input_tokens"] == len(
            session.requests[-1].prompt.tokens
        ) - (0 if budget >= whole else spent + len(session.tokenizer.encode("\n</think>\n\n")))


def test_a_budget_streams_one_thinking_block_and_then_the_answer(client, session):
    session.text = lambda request: "Yes." if request.prompt.channel == "answer" else "thinking " * 50
    body = {"messages": USER, "max_tokens": 500, "thinking": {"type": "enabled", "budget_tokens": 20}}
    message = fold_messages(client.stream(MESSAGES, body))
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["content"][1]["text"] == "Yes."
