"""What the anthropic package makes of us beyond the first message: its events, its error classes, its patience."""

import anthropic
import pytest

from dflash2_mlx.server.settings import ServeSettings
from live import running, serving_demo
from scripted import ScriptedSession

pytestmark = pytest.mark.slow  # the client takes seconds to import

WHO = [{"role": "user", "content": "Who are you?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "get_weather", "description": "Weather in a city", "input_schema": CITY}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
GREEDY = {"temperature": 0}
KEY = "a key"


@pytest.fixture(scope="module")
def url():
    with serving_demo(ServeSettings(cache_bytes=10**9, api_key=KEY)) as url:
        yield url


@pytest.fixture(scope="module")
def claude(url):
    with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=60) as client:
        yield client


def create(claude, **fields):
    return claude.messages.create(
        **{"model": "demo", "max_tokens": 300, "messages": WHO, "extra_body": GREEDY, **fields}
    )


def test_the_key_may_come_as_a_token_and_a_wrong_one_is_refused(url):
    with anthropic.Anthropic(base_url=url, auth_token=KEY, api_key=None, max_retries=0) as bearer:
        assert create(bearer).content
    with (
        anthropic.Anthropic(base_url=url, api_key="other", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError) as refused,
    ):
        create(stranger)
    assert refused.value.body["error"]["type"] == "authentication_error"


def test_a_stop_sequence_ends_the_text_and_is_named(claude):
    full = create(claude).content[0].text
    stop = full[len(full) // 2 :][:6]
    reply = create(claude, stop_sequences=[stop, "never said"])
    assert (reply.stop_reason, reply.stop_sequence) == ("stop_sequence", stop)
    assert reply.content[0].text == full[: full.index(stop)]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_an_answer_has_at_most_as_many_tokens_as_were_asked_for(claude, most):
    reply = create(claude, max_tokens=most)
    assert reply.usage.output_tokens == most and reply.stop_reason == "max_tokens"


def test_thinking_is_streamed_before_the_text_and_goes_back_as_it_came(claude):
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1500}
    with claude.messages.stream(model="demo", messages=WHO, extra_body=GREEDY, **fields) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert kinds.index("thinking") < kinds.index("signature") < kinds.index("text")
    history = [*WHO, {"role": "assistant", "content": message.content}, *WHO]
    again = create(claude, messages=history, **fields)
    assert again.usage.cache_read_input_tokens > message.usage.input_tokens - 10


def test_tools_go_round_and_their_result_is_told(claude):
    with claude.messages.stream(
        model="demo", max_tokens=300, messages=WEATHER, tools=TOOLS, extra_body=GREEDY
    ) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_message()
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert "input_json" in kinds and message.stop_reason == "tool_use" and call.input == {"city": "Paris"}
    content = [{"type": "text", "text": '{"temperature": 9, "sky": "sunny"}'}]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    history = [*WEATHER, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    assert "9" in create(claude, messages=history, tools=TOOLS).content[-1].text


def test_counting_sees_the_system_prompt_and_the_tools(claude):
    count = claude.messages.count_tokens
    alone = count(model="demo", messages=WHO).input_tokens
    with_system = count(model="demo", messages=WHO, system=[{"type": "text", "text": "Be brief."}]).input_tokens
    assert alone < with_system < count(model="demo", messages=WHO, system="Be brief.", tools=TOOLS).input_tokens
    used = create(claude, system="Be brief.", tools=TOOLS).usage
    assert (
        used.input_tokens + used.cache_read_input_tokens
        == count(model="demo", messages=WHO, system="Be brief.", tools=TOOLS).input_tokens
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tool_choice": {"type": "any"}, "tools": TOOLS}, "tool_choice"),
        ({"extra_body": {"temperature": -1}}, "temperature"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "text only"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "budget_tokens"),
    ],
)
def test_what_cannot_be_honoured_is_a_bad_request_that_names_it(claude, fields, words):
    with pytest.raises(anthropic.BadRequestError, match=words) as refused:
        create(claude, **fields)
    assert refused.value.body["error"]["type"] == "invalid_request_error"


@pytest.fixture
def scripted_claude(make_state, wrapper):
    session = ScriptedSession(wrapper, text="word " * 50, round_size=3)
    with running(make_state(session)) as url, anthropic.Anthropic(base_url=url, api_key="none") as client:
        yield client, session


def test_a_fault_in_the_middle_of_a_stream_is_raised_by_the_client(scripted_claude):
    claude, session = scripted_claude
    session.fail_after = 10
    seen = []
    with (
        pytest.raises(anthropic.APIStatusError, match="a fault"),
        claude.messages.stream(model="scripted", max_tokens=300, messages=WHO) as stream,
    ):
        for text in stream.text_stream:
            seen.append(text)
    assert seen and "".join(seen).startswith("word")


def test_no_memory_is_not_tried_again(scripted_claude):
    claude, session = scripted_claude
    session.error, session.fail_after = RuntimeError("[malloc] Unable to allocate 9 bytes"), 0
    with pytest.raises(anthropic.InternalServerError) as refused:
        claude.messages.create(model="scripted", max_tokens=300, messages=WHO)
    assert refused.value.status_code == 507 and len(session.requests) == 1


@pytest.fixture
def greeter(make_state, wrapper):
    """A client of a scripted session."""
    session = ScriptedSession(wrapper, text="Hi.")
    with running(make_state(session)) as url, anthropic.Anthropic(base_url=f"{url}/v1", api_key="x") as client:
        yield client, session


def said(session) -> list[str]:
    return [session.tokenizer.decode(list(request.prompt.tokens)) for request in session.requests]


def test_models_are_listed_with_what_its_type_needs(greeter):
    (model,) = greeter[0].models.list()
    assert (model.type, model.display_name, model.id) == ("model", "scripted", "scripted") and model.created_at.year


def test_a_thread_goes_on_with_the_whole_conversation(greeter):
    client, session = greeter
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.beta.messages.thread(model="scripted", max_tokens=50).send(WHO[0])
    assert refused.value.error_code == "thread_unsupported_request"
    how = {"unsupported_request_behavior": "continue_unthreaded"}
    thread = client.beta.messages.thread(model="scripted", max_tokens=50, **how)
    for text in ("My name is Ada.", "What is my name?"):
        assert thread.send({"role": "user", "content": text}).content[0].text == "Hi."
    assert "My name is Ada." in said(session)[-1] and "What is my name?" in said(session)[-1]
    assert len(session.requests) == 2


def test_a_tool_runner_runs_tools_and_comes_to_an_answer(greeter):
    client, session = greeter
    ran = []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Weather in a city."""
        ran.append(city)
        return "sunny"

    call = "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    session.text = lambda request: "It is sunny." if "sunny" in said(session)[-1] else call
    runner = client.beta.messages.tool_runner(model="scripted", max_tokens=90, messages=WHO, tools=[weather])
    assert runner.until_done().content[0].text == "It is sunny." and ran == ["Paris"]
    assert "Who are you?" in said(session)[-1] and "<function=weather>" in said(session)[-1]
