"""The real clients over a real socket and the bundled pair: chat, streams, tools, tokens, errors."""

import json

import anthropic
import openai
import pytest

from dflash2_mlx.server.settings import ServeSettings
from live import serving_demo

pytestmark = pytest.mark.slow  # the clients take seconds to import

WHO = [{"role": "user", "content": "Who are you?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Weather in a city", "parameters": CITY},
    }
]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(scope="module")
def url():
    with serving_demo(ServeSettings(cache_bytes=10**9)) as url:
        yield url


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(url):
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_openai_chat(client):
    reply = client.chat.completions.create(model="demo", messages=WHO, temperature=0, logprobs=True, top_logprobs=2)
    (choice,) = reply.choices
    assert choice.finish_reason == "stop" and "dflash2-mlx" in choice.message.content
    assert reply.usage.completion_tokens == len(choice.logprobs.content) + 1  # the end token
    assert reply.dflash["mode"] == "drafted" and reply.dflash["tokens_per_round"] > 1


def test_openai_stream_equals_the_whole_reply(client):
    whole = client.chat.completions.create(model="demo", messages=WHO, temperature=0)
    with client.chat.completions.stream(
        model="demo", messages=WHO, temperature=0, stream_options={"include_usage": True}
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].message.reasoning_content == whole.choices[0].message.reasoning_content
    assert final.usage.completion_tokens == whole.usage.completion_tokens


def test_openai_tools_go_round(client):
    with client.chat.completions.stream(model="demo", messages=WEATHER, tools=TOOLS, temperature=0) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls", choice
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"] == "Paris"
    answered = client.chat.completions.create(
        model="demo",
        tools=TOOLS,
        messages=[
            *WEATHER,
            {"role": "assistant", "tool_calls": [call.model_dump(exclude={"index"})]},
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
        ],
    )
    assert answered.choices[0].message.content


def test_openai_errors_are_its_own_classes(client):
    with pytest.raises(openai.NotFoundError, match="not served here"):
        client.chat.completions.create(model="gpt-5", messages=WHO)
    with pytest.raises(openai.BadRequestError, match=r"prompt is too long: [0-9]+ tokens > 32768 maximum") as raised:
        client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "word " * 40_000}])
    assert raised.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model="demo", messages=WHO, response_format={"type": "json_object"})
    assert (raised.value.code, raised.value.param) == ("unsupported_parameter", "response_format")


def test_openai_completions_and_responses(client):
    text = client.completions.create(model="demo", prompt="The capital of France is", max_tokens=5, temperature=0)
    assert text.usage.completion_tokens <= 5
    whole = client.responses.create(model="demo", input="Who are you?", temperature=0)
    with client.responses.stream(model="demo", input="Who are you?", temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.output_text == whole.output_text and final.usage.output_tokens == whole.usage.output_tokens


def test_openai_models(client):
    assert [model.id for model in client.models.list()] == ["demo"] and client.models.retrieve("demo").id == "demo"


GREEDY = {"temperature": 0}


def test_anthropic_message_stream_and_count(claude):
    whole = claude.messages.create(model="demo", max_tokens=300, messages=WHO, extra_body=GREEDY)
    assert [block.type for block in whole.content] == ["text"] and whole.stop_reason == "end_turn"
    with claude.messages.stream(model="demo", max_tokens=300, messages=WHO, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    counted = claude.messages.count_tokens(model="demo", messages=WHO).input_tokens
    assert counted == whole.usage.input_tokens + whole.usage.cache_read_input_tokens


def test_anthropic_thinking_and_its_budget(claude):
    fields = {"model": "demo", "max_tokens": 1500, "messages": WHO, "extra_body": GREEDY}
    free = claude.messages.create(thinking={"type": "enabled", "budget_tokens": 1024}, **fields)
    assert [block.type for block in free.content] == ["thinking", "text"]
    spent = free.usage.output_tokens_details.thinking_tokens
    short = claude.messages.create(thinking={"type": "enabled", "budget_tokens": spent // 2}, **fields)
    assert short.usage.output_tokens_details.thinking_tokens <= spent // 2
    assert free.content[0].thinking.startswith(short.content[0].thinking) and short.content[1].text


def test_anthropic_tools_go_round(claude):
    tools = [{"name": "get_weather", "description": "Weather in a city", "input_schema": CITY}]
    fields = {"model": "demo", "max_tokens": 300, "tools": tools, "extra_body": GREEDY}
    with claude.messages.stream(messages=WEATHER, **fields) as stream:
        for _ in stream:
            pass
        message = stream.get_final_message()
    call = message.content[-1]
    assert message.stop_reason == "tool_use" and call.name == "get_weather" and call.input["city"] == "Paris"
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    history = [*WEATHER, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    assert claude.messages.create(messages=history, **fields).content


def test_anthropic_errors_are_its_own_classes(claude):
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="claude-9", max_tokens=5, messages=WHO)
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: [0-9]+ tokens > 32768 maximum"):
        claude.messages.create(model="demo", max_tokens=5, messages=[{"role": "user", "content": "word " * 40_000}])


def test_a_second_turn_runs_only_what_is_new(client):
    messages = [{"role": "system", "content": "Be brief. " * 30}, *WHO]
    first = client.chat.completions.create(model="demo", messages=messages, temperature=0)
    said = first.choices[0].message
    again = client.chat.completions.create(model="demo", messages=messages, temperature=0)
    assert again.choices[0].message.content == said.content
    assert again.usage.prompt_tokens_details.cached_tokens > 0.8 * again.usage.prompt_tokens
    turn = {"role": "assistant", "content": said.content, "reasoning_content": said.reasoning_content}
    second = client.chat.completions.create(model="demo", messages=[*messages, turn, *WHO], temperature=0)
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 10


def test_a_prefix_of_two_thousand_tokens_is_read_once(client):
    """Same text as a cold run, and a tenth of the time to the first token."""
    system = {"role": "system", "content": "The quick brown fox jumps over the lazy dog. " * 150}

    def ask(*before):
        messages = [*before, system, *WHO]
        return client.chat.completions.create(model="demo", messages=messages, temperature=0, max_tokens=40)

    cold, warm = ask(), ask()
    other = ask({"role": "system", "content": "Another one."})  # a different prefix: nothing of it is kept
    assert cold.usage.prompt_tokens > 2000 and cold.usage.prompt_tokens_details.cached_tokens == 0
    assert (
        warm.usage.prompt_tokens_details.cached_tokens > 2000 and other.usage.prompt_tokens_details.cached_tokens < 20
    )
    assert warm.choices[0].message.content == cold.choices[0].message.content
    share = warm.usage.time_to_first_token / cold.usage.time_to_first_token
    print(f"first token: cold {cold.usage.time_to_first_token:.3f} s, with its prefix kept {share:.1%} of that")
    assert share < 0.1
