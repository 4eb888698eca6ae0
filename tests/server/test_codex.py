"""What Codex sends and reads beyond plain functions: namespaces, tools that items bring, items of other tools."""

import pytest

from asking import RESPONSES, events

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "name": "get_weather", "description": "Weather.", "parameters": PARAMETERS}
NAMESPACE = {"type": "namespace", "name": "mcp__weather", "description": "A server.", "tools": [WEATHER]}
CALLED = (
    "</think>\n\n<tool_call>\n<function=mcp__weather__get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "</function>\n</tool_call>"
)
USER = {"role": "user", "content": "Weather?"}


def post(client, **fields):
    reply = client.post(RESPONSES, {"input": "Weather?", **fields})
    assert reply.status_code == 200, reply.text
    return reply


def prompt(session) -> str:
    return session.tokenizer.decode(list(session.requests[-1].prompt.tokens))


def test_the_functions_of_a_namespace_are_offered_and_called_by_both_of_their_names(client, session):
    session.text = CALLED
    reply = post(client, tools=[NAMESPACE])
    assert '"name": "mcp__weather__get_weather"' in prompt(session) and '"name": "get_weather"' not in prompt(session)
    assert "Weather." in prompt(session) and '"city"' in prompt(session)
    call = reply.json()["output"][-1]
    assert (call["type"], call["namespace"], call["name"]) == ("function_call", "mcp__weather", "get_weather")
    assert call["arguments"] == '{"city": "Paris"}'
    assert reply.headers["X-DFlash2-Ignored-Params"] == "tools[].description"
    found = events(post(client, tools=[NAMESPACE], stream=True).text)
    items = [data["item"] for name, data in found if name.startswith("response.output_item")]
    assert all((item["namespace"], item["name"]) == ("mcp__weather", "get_weather") for item in items[-2:])
    assert found[-1][1]["response"]["output"][-1] == items[-1]
    (done,) = [data for name, data in found if name == "response.function_call_arguments.done"]
    assert done["name"] == "get_weather"
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    session.text = "</think>\n\nSunny."
    post(client, tools=[NAMESPACE], input=[USER, call, output])
    assert "<function=mcp__weather__get_weather>" in prompt(session) and "sunny" in prompt(session)


def test_two_namespaces_may_have_a_function_of_the_same_name(client, session):
    session.text = "</think>\n\nHi."
    other = {**NAMESPACE, "name": "mcp__other"}
    post(client, tools=[NAMESPACE, other, WEATHER, {"type": "web_search"}])
    names = [tool["function"]["name"] for tool in session.requests[-1].text.tools]
    assert names == ["mcp__weather__get_weather", "mcp__other__get_weather", "get_weather"]


def test_a_model_that_leaves_the_namespace_out_is_understood_where_nothing_else_is_called_so(client, session):
    session.text = CALLED.replace("mcp__weather__", "")
    call = post(client, tools=[NAMESPACE]).json()["output"][-1]
    assert (call["namespace"], call["name"]) == ("mcp__weather", "get_weather")
    assert "namespace" not in post(client, tools=[NAMESPACE, WEATHER]).json()["output"][-1]
    other = {**NAMESPACE, "name": "mcp__other"}
    assert post(client, tools=[NAMESPACE, other]).json()["output"][-1]["type"] == "message"
    assert post(client, tools=[NAMESPACE], tool_choice="none").json()["output"][-1]["type"] == "message"


def test_tools_that_a_developer_item_brings_are_offered(client, session):
    session.text = CALLED
    items = [USER, {"type": "additional_tools", "role": "developer", "tools": [NAMESPACE]}]
    assert post(client, input=items).json()["output"][-1]["namespace"] == "mcp__weather"


def test_tools_that_a_search_found_are_offered_and_the_search_is_read(client, session):
    session.text = CALLED
    search = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "weather"}}
    found = {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": [NAMESPACE]}
    assert post(client, input=[USER, search, found]).json()["output"][-1]["name"] == "get_weather"
    assert "<function=tool_search>" in prompt(session) and "Tools found: mcp__weather__get_weather." in prompt(session)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin"}, "*** Begin"),
        ({"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls", "-l"]}}, "<function=local_shell>"),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {"path": "a.py"}}, "a.py"),
        ({"type": "custom_tool_call_output", "call_id": "c", "output": "done it"}, "done it"),
        ({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a file", "stderr": ""}]}, "a file"),
        ({"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}, "left out"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]}, "I will not."),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "Well."}], "phase": "x"}, "Well."),
    ],
)
def test_the_history_of_other_tools_is_read(client, session, item, said):
    session.text = "</think>\n\nHi."
    post(client, input=[USER, item, USER])
    assert said in prompt(session)


@pytest.mark.parametrize(
    "kind",
    [
        *("web_search_call", "file_search_call", "image_generation_call", "code_interpreter_call"),
        *("mcp_list_tools", "mcp_call", "compaction"),
    ],
)
def test_what_other_servers_did_is_passed_over_and_named(client, session, kind):
    session.text = "</think>\n\nHi."
    reply = post(client, input=[USER, {"type": kind, "id": "x", "status": "completed"}, USER])
    assert reply.headers["X-DFlash2-Ignored-Params"] == f"input[].{kind}"


@pytest.mark.parametrize(
    "tools", ["all", [5], [{"type": "namespace"}], [{**NAMESPACE, "tools": [{"type": "function"}]}]]
)
def test_tools_that_cannot_be_read_are_a_400(client, tools):
    for fields in ({"tools": tools}, {"input": [USER, {"type": "additional_tools", "tools": tools}]}):
        reply = client.post(RESPONSES, {"input": "hi", **fields})
        assert reply.status_code == 400 and reply.json()["error"]["param"] in ("tools", "input")
