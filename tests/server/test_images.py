"""Pictures and files, which no model here sees: left out of a tool's result, and of a user's message where allowed."""

import pytest

from asking import CHAT, MESSAGES, RESPONSES, USER, Client
from dflash2_mlx.server.settings import ServeSettings
from scripted import ScriptedSession

DATA = "data:image/png;base64,AAAA"
IMAGES = {
    CHAT: {"type": "image_url", "image_url": {"url": DATA}},
    MESSAGES: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    RESPONSES: {"type": "input_image", "image_url": DATA},
}
TEXTS = {CHAT: "text", MESSAGES: "text", RESPONSES: "input_text"}
LEFT_OUT = "[image left out: this model reads text only]"


def after_a_tool(path: str, *content: dict) -> dict:
    """A conversation in which a tool gave back `content`."""
    if path == RESPONSES:
        call = {"type": "function_call", "call_id": "t", "name": "view_image", "arguments": "{}"}
        return {"input": [*USER, call, {"type": "function_call_output", "call_id": "t", "output": list(content)}]}
    if path == CHAT:
        call = {"id": "t", "type": "function", "function": {"name": "view_image", "arguments": "{}"}}
        said = {"role": "assistant", "tool_calls": [call]}
        return {"messages": [*USER, said, {"role": "tool", "tool_call_id": "t", "content": list(content)}]}
    use = {"type": "tool_use", "id": "t", "name": "view_image", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": list(content)}
    turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return {"messages": [*USER, *turns], "max_tokens": 9}


def from_the_user(path: str, *content: dict) -> dict:
    turn = [{"role": "user", "content": list(content)}]
    return {"input": turn} if path == RESPONSES else {"messages": turn, "max_tokens": 9}


def prompt(session: ScriptedSession) -> str:
    return session.tokenizer.decode(list(session.requests[-1].prompt.tokens))


@pytest.mark.parametrize("path", IMAGES)
def test_an_image_in_a_tool_s_result_is_left_out_and_said(client, session, path):
    session.text = "Hi."
    reply = client.post(path, after_a_tool(path, {"type": TEXTS[path], "text": "a cat:"}, IMAGES[path]))
    assert reply.status_code == 200, reply.text
    assert "a cat:" in prompt(session) and LEFT_OUT in prompt(session)
    places = {
        CHAT: "messages[].content[].image",
        MESSAGES: "messages[].content[].content[].image",
        RESPONSES: "input[].output[].image",
    }
    assert reply.headers["X-DFlash2-Ignored-Params"] == places[path]


@pytest.mark.parametrize("path", IMAGES)
def test_other_parts_of_a_tool_s_result_are_left_out_too(client, session, path):
    session.text = "Hi."
    assert client.post(path, after_a_tool(path, {"type": "document", "source": {}})).status_code == 200
    assert "[document left out" in prompt(session)


@pytest.mark.parametrize("path", IMAGES)
def test_an_image_in_a_user_s_message_is_a_400_that_says_how_to_allow_it(client, path):
    reply = client.post(path, from_the_user(path, IMAGES[path]))
    assert reply.status_code == 400 and "--images placeholder" in reply.json()["error"]["message"]
    assert path == MESSAGES or reply.json()["error"]["code"] == "unsupported_content"


@pytest.mark.parametrize("path", IMAGES)
def test_an_image_in_a_user_s_message_can_be_allowed_and_is_left_out(make_state, session, path):
    session.text = "Hi."
    client = Client(make_state(session, ServeSettings(images="placeholder")))
    reply = client.post(path, from_the_user(path, {"type": TEXTS[path], "text": "What is it?"}, IMAGES[path]))
    assert reply.status_code == 200 and LEFT_OUT in prompt(session) and "What is it?" in prompt(session)
    assert reply.headers["X-DFlash2-Ignored-Params"].endswith("content[].image")
    assert client.post(path, from_the_user(path, {"type": "input_audio", "data": "x"})).status_code == 400
