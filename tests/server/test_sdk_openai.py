"""What the openai package makes of us beyond the first chat: its helpers, its error classes, its patience."""

import asyncio
import json
import threading
import time

import openai
import pytest

from dflash2_mlx.server.settings import ServeSettings
from live import running, serving_demo, wait_for
from scripted import ScriptedSession

pytestmark = pytest.mark.slow  # the client takes seconds to import

WHO = [{"role": "user", "content": "Who are you?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FLAT = [{"type": "function", "name": "get_weather", "description": "Weather in a city", "parameters": CITY}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
KEY = "a key"


@pytest.fixture(scope="module")
def url():
    with serving_demo(ServeSettings(cache_bytes=10**9, api_key=KEY)) as url:
        yield f"{url}/v1"


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=60) as client:
        yield client


def chat(client, **fields):
    return client.chat.completions.create(**{"model": "demo", "messages": WHO, **fields})


def test_a_seed_repeats_an_answer_and_other_seeds_change_it(client):
    def said(seed: int) -> tuple[str, str]:
        message = chat(client, temperature=2, seed=seed).choices[0].message
        return message.reasoning_content, message.content

    assert said(7) == said(7) and len({said(seed) for seed in range(5)}) > 1


def test_nothing_from_a_stop_string_on_is_seen_streamed_or_whole(client):
    full = chat(client, temperature=0, reasoning_effort="none").choices[0].message.content
    stop = full[len(full) // 2 :][:6]
    whole = chat(client, temperature=0, reasoning_effort="none", stop=[stop]).choices[0]
    assert whole.message.content == full[: full.index(stop)] and whole.finish_reason == "stop"
    pieces = chat(client, temperature=0, reasoning_effort="none", stop=stop, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == whole.message.content


@pytest.mark.parametrize("most", [1, 2, 7])
def test_an_answer_has_at_most_as_many_tokens_as_were_asked_for(client, most):
    reply = chat(client, max_tokens=most)
    assert reply.usage.completion_tokens == most and reply.choices[0].finish_reason == "length"


def test_streamed_logprobs_are_those_of_the_whole_reply(client):
    fields = {"temperature": 0, "max_tokens": 12, "logprobs": True, "top_logprobs": 3}
    whole = chat(client, **fields).choices[0].logprobs.content
    streamed = [
        entry
        for chunk in chat(client, **fields, stream=True)
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert [entry.model_dump() for entry in streamed] == [entry.model_dump() for entry in whole]
    assert len(whole) == 12 and all(len(entry.top_logprobs) == 3 for entry in whole)
    assert all(entry.token == entry.top_logprobs[0].token for entry in whole), "greedy takes the likeliest"


def test_the_usage_chunk_comes_last_without_choices_and_only_when_asked(client):
    asked = list(chat(client, stream=True, stream_options={"include_usage": True}, max_tokens=5))
    assert asked[-1].choices == [] and asked[-1].usage.completion_tokens == 5
    assert all(chunk.usage is None for chunk in asked[:-1])
    assert all(chunk.usage is None and chunk.choices for chunk in chat(client, stream=True, max_tokens=5))


def test_a_wrong_key_a_wrong_route_and_a_wrong_type_are_classes_of_their_own(client, url):
    with (
        openai.OpenAI(base_url=url, api_key="other", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError) as refused,
    ):
        chat(stranger)
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="demo", input="text")
    with pytest.raises(openai.BadRequestError) as wrong:
        chat(client, temperature="hot")
    assert (wrong.value.param, wrong.value.code) == ("temperature", "invalid_type")
    with pytest.raises(openai.BadRequestError) as several:
        chat(client, n=2)
    assert several.value.param == "n"


def test_responses_stream_the_events_that_their_whole_reply_folds(client):
    fields = {"model": "demo", "input": "Who are you?", "temperature": 0}
    whole = client.responses.create(**fields)
    events = list(client.responses.create(**fields, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == whole.output_text == events[-1].response.output_text
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens


def test_tools_go_round_in_responses(client):
    fields = {"model": "demo", "tools": FLAT, "temperature": 0}
    with client.responses.stream(input=WEATHER, **fields) as stream:
        for _ in stream:
            pass
        (call,) = [item for item in stream.get_final_response().output if item.type == "function_call"]
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"}
    told = {"type": "function_call_output", "call_id": call.call_id, "output": '{"temperature": 9, "sky": "sunny"}'}
    made = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
    assert "9" in client.responses.create(input=[*WEATHER, made, told], **fields).output_text


def test_many_asynchronous_clients_at_once_get_the_same_text(url):
    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        if number % 2:
            reply = await chat(client, temperature=0)
            return reply.choices[0].message.content
        pieces = []
        async for chunk in await chat(client, temperature=0, stream=True):
            pieces.append(chunk.choices[0].delta.content or "")
        return "".join(pieces)

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=120) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(8)))

    assert len(set(asyncio.run(all_of_them()))) == 1


@pytest.fixture
def scripted_client(make_state, wrapper):
    """A client with two retries, and the state and session that it talks to."""
    session = ScriptedSession(wrapper, text="</think>\n\nHello.", round_size=100)
    state = make_state(session, ServeSettings(max_queue=1))
    with running(state) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=2) as client:
        yield client, state, session


def test_a_client_that_times_out_frees_the_engine(scripted_client):
    client, state, session = scripted_client
    session.prefill_steps, session.pace_s = 1000, 0.01
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3, max_retries=0).chat.completions.create(model="scripted", messages=WHO)
    wait_for(lambda: state.worker.active == 0)
    assert session.closed == 1


def test_a_full_queue_is_tried_again_and_then_answered(scripted_client):
    client, state, session = scripted_client
    session.prefill_steps, session.pace_s = 10**6, 0.01
    streams = [client.chat.completions.create(model="scripted", messages=WHO, stream=True) for _ in range(2)]
    wait_for(lambda: state.worker.waiting == 1)
    session.prefill_steps = 1  # of the one that waits, and of what comes after it
    threading.Timer(1.0, streams[0].close).start()
    began = time.monotonic()
    assert client.chat.completions.create(model="scripted", messages=WHO).choices[0].message.content == "Hello."
    assert time.monotonic() - began > 1 and state.totals.failed == 1
    for stream in streams:
        stream.close()


def test_no_memory_is_not_tried_again(scripted_client):
    client, _, session = scripted_client
    session.error, session.fail_after = RuntimeError("[malloc] Unable to allocate 9 bytes"), 0
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="scripted", messages=WHO)
    assert refused.value.status_code == 507 and len(session.requests) == 1


def test_a_fault_in_the_middle_of_a_stream_is_raised_by_the_client(scripted_client):
    client, _, session = scripted_client
    session.text, session.round_size, session.fail_after = "</think>\n\n" + "word " * 50, 3, 10
    seen = []
    with pytest.raises(openai.APIError, match="a fault"):
        for chunk in client.chat.completions.create(model="scripted", messages=WHO, stream=True):
            seen.append(chunk)
    assert len(seen) > 3


def test_responses_go_on_from_one_another_and_can_be_read_again(scripted_client):
    client, _, session = scripted_client
    first = client.responses.create(model="scripted", input="My name is Ada.")
    assert client.responses.retrieve(first.id).output_text == first.output_text == "Hello."
    second = client.responses.create(model="scripted", input="And now?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert "My name is Ada." in session.tokenizer.decode(list(session.requests[-1].prompt.tokens))
    asked = client.responses.input_items.list(second.id, order="asc")
    assert [item.content for item in asked if item.type == "message" and item.role == "user"] == [
        *("My name is Ada.", "And now?"),
    ]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="Send the whole conversation"):
        client.responses.create(model="scripted", input="And now?", previous_response_id=first.id)


def test_a_conversation_is_begun_used_and_listed(scripted_client):
    client, _, session = scripted_client
    conversation = client.conversations.create(items=[{"role": "user", "content": "My name is Ada."}])
    client.responses.create(model="scripted", input="What is it?", conversation=conversation.id)
    assert "My name is Ada." in session.tokenizer.decode(list(session.requests[-1].prompt.tokens))
    client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "Bye."}])
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.role for item in items if item.type == "message"] == ["user", "user", "assistant", "user"]
    assert client.conversations.retrieve(conversation.id).id == conversation.id
    assert client.conversations.delete(conversation.id).deleted


def test_a_base_url_without_v1_works(scripted_client):
    client, _, _ = scripted_client
    bare = client.with_options(base_url=str(client.base_url).removesuffix("/v1/"))
    assert chat(bare, model="scripted").choices[0].message.content == "Hello."


def test_forty_requests_at_once_are_all_answered_at_the_first_try(make_state, wrapper):
    state = make_state(ScriptedSession(wrapper, text="</think>\n\nHello.", round_size=1, pace_s=0.002))

    async def ask_all(url: str) -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            replies = await asyncio.gather(*(chat(client, model="scripted") for _ in range(40)))
        return [reply.choices[0].message.content for reply in replies]

    with running(state) as url:
        assert asyncio.run(ask_all(url)) == ["Hello."] * 40
    assert state.totals.failed == 0


def test_a_function_of_a_namespace_is_called_by_both_of_its_names(scripted_client):
    client, _, session = scripted_client
    session.text = "</think>\n\n<tool_call>\n<function=mcp__x__get_weather>\n</function>\n</tool_call>"
    namespace = {"type": "namespace", "name": "mcp__x", "description": "Weather.", "tools": FLAT}
    (call,) = client.responses.create(model="scripted", input=WEATHER, tools=[namespace]).output
    assert (call.namespace, call.name) == ("mcp__x", "get_weather")
