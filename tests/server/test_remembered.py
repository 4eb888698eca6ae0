"""Responses that go on from earlier ones: by id, in a conversation, item by item; each for its own key, and bounded."""

import pytest

from asking import RESPONSES, events
from dflash2_mlx.server.errors import ApiError
from dflash2_mlx.server.openai import remembered
from dflash2_mlx.server.openai.remembered import Remembered

CONVERSATIONS = "/v1/conversations"


@pytest.fixture
def ask(client, session):
    session.text = "I think.\n</think>\n\nHello there."

    def ask(given, key="k", **fields) -> dict:
        body = {"input": given, **fields}
        reply = client.post(RESPONSES, body, headers={"Authorization": f"Bearer {key}"})
        assert reply.status_code == 200, reply.text
        if fields.get("stream"):
            return events(reply.text)[-1][1]["response"]
        return reply.json()

    return ask


def prompt(session) -> str:
    return session.tokenizer.decode(list(session.requests[-1].prompt.tokens))


def status(client, method: str, path: str, key: str = "k") -> int:
    return client.request(method, path, headers={"Authorization": f"Bearer {key}"}).status_code


@pytest.mark.parametrize("stream", [True, False])
def test_a_response_goes_on_from_the_one_that_it_names(ask, session, stream):
    first = ask("My name is Ada.", instructions="Be brief.", stream=stream)
    second = ask("What is my name?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    said = prompt(session)
    assert said.index("My name is Ada.") < said.index("Hello there.") < said.index("What is my name?")
    assert "Be brief." not in said, "instructions are of one request"
    third = ask("And mine?", previous_response_id=second["id"])
    assert prompt(session).count("Hello there.") == 2 and third["store"] is True
    assert ask([*history(ask, session), {"role": "user", "content": "And mine?"}])["status"] == "completed"


def history(ask, session) -> list[dict]:
    first = ask("My name is Ada.")
    return [{"role": "user", "content": "My name is Ada."}, *first["output"]]


def test_the_prompt_is_the_same_as_with_the_whole_conversation(ask, session):
    first = ask("My name is Ada.")
    ask("And?", previous_response_id=first["id"])
    by_id = session.requests[-1].prompt
    ask([{"role": "user", "content": "My name is Ada."}, *first["output"], {"role": "user", "content": "And?"}])
    assert session.requests[-1].prompt == by_id
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    ask([{"role": "user", "content": "My name is Ada."}, *references, {"role": "user", "content": "And?"}])
    assert session.requests[-1].prompt == by_id
    bare = [{"id": item["id"]} for item in first["output"]]
    ask([{"role": "user", "content": "My name is Ada."}, *bare, {"role": "user", "content": "And?"}])
    assert session.requests[-1].prompt == by_id


def test_a_response_can_be_read_again_and_forgotten(client, ask):
    first = ask("Hi")
    path = f"{RESPONSES}/{first['id']}"
    assert client.get(path, headers={"Authorization": "Bearer k"}).json() == first
    items = client.get(f"{path}/input_items", headers={"x-api-key": ""} | {"Authorization": "Bearer k"}).json()
    assert [item["content"] for item in items["data"]] == ["Hi"] and items["has_more"] is False
    assert status(client, "DELETE", path) == 200 and status(client, "GET", path) == 404
    assert status(client, "DELETE", path) == 404


def test_what_is_not_to_be_stored_is_not(client, ask):
    first = ask("Hi", store=False)
    assert first["store"] is False and status(client, "GET", f"{RESPONSES}/{first['id']}") == 404


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": "resp_gone"},
        {"conversation": "conv_gone"},
        {"conversation": {"id": "conv_gone"}},
        {"input": [{"type": "item_reference", "id": "msg_gone"}]},
    ],
)
def test_what_is_forgotten_is_a_404_that_says_what_to_do(client, fields):
    reply = client.post(RESPONSES, {"input": "hi", **fields})
    assert reply.status_code == 404 and "Send the whole conversation" in reply.json()["error"]["message"]
    assert "_gone'" in reply.json()["error"]["message"]


def test_another_key_sees_nothing_of_it(client, ask):
    first = ask("Hi", key="mine")
    assert status(client, "GET", f"{RESPONSES}/{first['id']}", "mine") == 200
    assert status(client, "GET", f"{RESPONSES}/{first['id']}", "other") == 404
    for fields in ({"previous_response_id": first["id"]}, {"input": [{"id": first["output"][0]["id"]}]}):
        assert client.post(RESPONSES, {"input": "hi", **fields}).status_code == 404


def test_a_conversation_holds_what_was_said_in_it(client, ask, session):
    key = {"Authorization": "Bearer k"}
    begun = client.post(CONVERSATIONS, {"items": [{"role": "user", "content": "My name is Ada."}]}, headers=key).json()
    path = f"{CONVERSATIONS}/{begun['id']}"
    assert ask("What is my name?", conversation=begun["id"])["conversation"] == {"id": begun["id"]}
    assert "My name is Ada." in prompt(session)
    ask("And now?", conversation={"id": begun["id"]}, store=False)
    assert "Hello there." in prompt(session) and "What is my name?" in prompt(session)
    added = client.post(f"{path}/items", {"items": [{"role": "user", "content": "Bye."}]}, headers=key).json()
    listed = client.get(f"{path}/items?order=asc", headers=key).json()["data"]
    kinds = [item["type"] for item in listed]
    assert kinds == ["message", "message", "reasoning", "message", "message", "reasoning", "message", "message"]
    assert all(item["id"] for item in listed) and listed[-1] == added["data"][0]
    assert client.get(f"{path}/items", headers=key).json()["data"] == listed[::-1]
    assert client.get(path, headers=key).json() == begun
    assert client.request("DELETE", path, headers=key).json()["object"] == "conversation.deleted"
    assert client.post(f"{path}/items", {"items": []}, headers=key).status_code == 404


def test_a_failed_response_is_not_kept(client, session):
    session.text, session.fail_after = "</think>\n\nHello there.", 1
    found = events(client.post(RESPONSES, {"input": "hi", "stream": True}).text)
    assert client.get(f"{RESPONSES}/{found[-1][1]['response']['id']}").status_code == 404


def kept(store: Remembered, owner: str, identity: str) -> bool:
    try:
        return store.entry(owner, identity) is not None
    except ApiError:
        return False


def test_the_least_used_goes_first_and_what_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(remembered, "MOST_ENTRIES", 3)
    monkeypatch.setattr(remembered, "MOST_BYTES", 1000)
    store = Remembered()
    for name in "abc":
        store.keep("mine", {"id": name}, None, [])
    assert kept(store, "mine", "a")
    store.keep("other", {"id": "d"}, None, [])
    assert [kept(store, "mine", name) for name in "abcd"] == [True, False, True, False] and kept(store, "other", "d")
    for name in "ef":
        store.keep("mine", {"id": name, "text": "x" * 700}, None, [])
    assert not kept(store, "mine", "e") and kept(store, "mine", "f") and store.nbytes < 1000
    store.keep("mine", {"id": "g", "text": "x" * 2000}, None, [])
    assert not kept(store, "mine", "g") and kept(store, "mine", "f")
    assert store.forget("mine", "f")["id"] == "f" and (store.nbytes, len(store.entries)) == (0, 0)
