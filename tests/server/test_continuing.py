"""A last message of the assistant's goes on, on every route: the prompt ends right behind its text."""

from dataclasses import fields

import pytest

from asking import CHAT, MESSAGES, RESPONSES, USER, fold_chat, fold_messages
from dflash2_mlx.text.prompt import Prompt

# the text layer is what continues; without it the routes have nothing to let through
pytestmark = pytest.mark.skipif("continued" not in {field.name for field in fields(Prompt)}, reason="not rendered yet")
BEGUN = "The capital of France is"


def body(path: str, content: object = BEGUN, **more: object) -> dict:
    messages = [*USER, {"role": "assistant", "content": content}]
    return {"input": messages, **more} if path == RESPONSES else {"messages": messages, "max_tokens": 50, **more}


def prompt(session) -> str:
    return session.tokenizer.decode(list(session.requests[-1].prompt.tokens))


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize("stream", [True, False])
def test_the_prompt_ends_behind_the_assistant_s_text(client, session, path, stream):
    session.text = " Paris."
    reply = client.post(path, body(path, stream=stream))
    assert reply.status_code == 200, reply.text
    assert prompt(session).endswith(BEGUN) and session.requests[-1].prompt.channel == "answer"
    assert " Paris." in reply.text and BEGUN not in reply.text, "only what is new is said"
    assert "X-DFlash2-Ignored-Params" not in reply.headers


def test_parts_are_continued_as_text_is(client, session):
    session.text = " Paris."
    parts = {CHAT: "text", MESSAGES: "text", RESPONSES: "output_text"}
    for path, kind in parts.items():
        assert client.post(path, body(path, [{"type": kind, "text": BEGUN}])).status_code == 200
        assert prompt(session).endswith(BEGUN)


def test_a_stream_folds_to_the_whole_reply(client, session):
    session.text = " Paris. <tool_call>"
    folded = fold_chat(data for _, data in client.stream(CHAT, body(CHAT)))
    whole = client.post(CHAT, body(CHAT)).json()["choices"][0]
    assert folded["message"]["content"] == whole["message"]["content"] == session.text
    folded = fold_messages(client.stream(MESSAGES, body(MESSAGES)))
    assert folded["content"] == client.post(MESSAGES, body(MESSAGES)).json()["content"]


@pytest.mark.parametrize("fields", [{"continue_final_message": True}, {"add_generation_prompt": False}])
def test_what_asks_for_it_by_name_is_honoured_and_its_contrary_refused(client, session, fields):
    session.text = " Paris."
    assert client.chat(messages=body(CHAT)["messages"], **fields).status_code == 200
    (name, value), *_ = fields.items()
    refused = client.chat(messages=body(CHAT)["messages"], **{name: not value})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == name


def test_thinking_that_is_asked_for_does_not_stand_in_the_way(client, session):
    session.text = " Paris."
    for more in ({"thinking": {"type": "adaptive"}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
        assert client.post(MESSAGES, body(MESSAGES, **more)).status_code == 200
        assert prompt(session).endswith(BEGUN)
