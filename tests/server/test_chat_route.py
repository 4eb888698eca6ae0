"""Chat completions: every field is honoured or refused by name, null is the default, and the numbers are there."""

import math

import pytest

from asking import CHAT, TOOLS, USER
from outputs import ONE, TWO

SAID = "</think>\n\nHello there."


@pytest.fixture
def ask(client, session):
    session.text = SAID

    def ask(**fields):
        reply = client.chat(**fields)
        assert reply.status_code == 200, reply.text
        return session.requests[-1], reply.json()

    return ask


@pytest.fixture
def refused(client):
    def refused(**fields):
        reply = client.chat(**fields)
        assert reply.status_code == 400, reply.text
        error = reply.json()["error"]
        assert error["type"] == "invalid_request_error" and len(error["message"]) > 20
        return error["code"], error["param"]

    return refused


NULLABLE = [
    *("model", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty"),
    *("presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "stop", "max_tokens", "n"),
    *("max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort"),
    *("chat_template_kwargs", "enable_thinking", "modalities", "user", "metadata", "functions", "unheard_of"),
]


def test_every_optional_field_may_be_null(client, ask):
    request, _ = ask()
    again, _ = ask(**dict.fromkeys(NULLABLE))
    assert request == again
    assert "X-DFlash2-Ignored-Params" not in client.chat(**dict.fromkeys(NULLABLE)).headers


def test_an_answer_goes_on_from_a_last_message_of_the_assistants(ask, session):
    session.text = "still</think>So"
    thinking = [*USER, {"role": "assistant", "content": "", "reasoning_content": "I "}]
    request, reply = ask(messages=thinking)
    assert session.tokenizer.decode(list(request.prompt.tokens)).endswith("<think>\nI ")
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "So", "reasoning_content": "still"}


def test_a_stop_string_that_the_thinking_mentions_ends_nothing(ask, session):
    session.text = "No zed.\n</think>\n\nA, zed."
    _, reply = ask(stop=["zed"])
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "A, ", "reasoning_content": "No zed."}
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_sampling_fields_reach_the_engine(ask):
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 2**70,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
    }
    request, _ = ask(**given, logit_bias={"5": 3, "6": -100.0}, logprobs=True, top_logprobs=4)
    assert {name: getattr(request.sampling, name) for name in given} == given
    assert request.sampling.logit_bias == {5: 3.0, 6: -100.0} and request.sampling.logprobs == 4


def test_whole_numbers_are_numbers_and_minus_one_switches_top_k_off(ask):
    assert ask(temperature=1, top_p=1, top_k=-1)[0].sampling.top_k == 0


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 5, "max_tokens": 7}, 5),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": 10**30}, 4082),
        ({"max_tokens": -1}, 4082),
        ({}, 4082),
    ],
)
def test_the_limit_is_what_was_asked_for_and_no_more_than_the_context_leaves(ask, fields, limit):
    request, _ = ask(**fields)
    assert len(request.prompt.tokens) == 4096 - 4082
    assert request.engine.max_tokens == limit


@pytest.mark.parametrize(
    "field",
    [
        *({"repeat_penalty": 1.0}, {"typical_p": 1}, {"tfs_z": 1.0}, {"top_a": 0}, {"xtc_probability": 0.0}),
        *({"mirostat": 0}, {"min_tokens": 0}, {"functions": []}, {"function_call": "auto"}, {"stop_token_ids": []}),
        *({"logit_bias": {}}, {"n": 1}, {"response_format": {"type": "text"}}, {"modalities": ["text"]}),
        *({"add_generation_prompt": True}, {"continue_final_message": False}, {"web_search_options": None}),
    ],
)
def test_a_field_that_asks_for_nothing_is_fine(ask, field):
    assert ask(**field)[0] == ask()[0]


def test_a_seed_of_minus_one_is_a_fresh_seed(ask):
    assert ask(seed=-1)[0].sampling.seed is None and ask(seed=-2)[0].sampling.seed == -2


@pytest.mark.parametrize("most", [0, 1, 2, 5])
def test_at_most_so_many_tokens_come_and_the_cut_is_told(ask, most):
    _, reply = ask(max_tokens=most)
    assert reply["usage"]["completion_tokens"] == most and reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 1000}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"seed": 1.5}, "seed"),
        ({"seed": "7"}, "seed"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 1e9}, "presence_penalty"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"logit_bias": {"0" * 20 + "99999": 1}}, "logit_bias"),
        ({"logit_bias": {"cat": 1}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"logit_bias": {"1": 5000}}, "logit_bias"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": [str(n) for n in range(100)]}, "stop"),
        ({"max_tokens": "7"}, "max_tokens"),
        ({"max_tokens": 7.0}, "max_tokens"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": ["hello"]}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "weather"}}}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"repeat_penalty": 1.1}, "repeat_penalty"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"min_tokens": 5}, "min_tokens"),
        ({"reasoning_effort": "zeal"}, "reasoning_effort"),
        ({"reasoning_effort": ""}, "reasoning_effort"),
        ({"chat_template_kwargs": {"custom": 1}}, "chat_template_kwargs.custom"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}, "reasoning_effort"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(refused, fields, param):
    assert refused(**fields)[1] == param


@pytest.mark.parametrize(
    ("word", "sent"), [("none", "off"), ("minimal", "low"), ("low", "low"), ("medium", "medium"), ("high", "xhigh")]
)
def test_an_effort_is_what_the_template_makes_of_it(ask, wrapper, word, sent):
    from dflash2_mlx.text.prompt import ChatFormat

    expected = ChatFormat(wrapper).render(USER, reasoning=word).tokens
    assert ask(reasoning_effort=word)[0].prompt.tokens == expected
    assert ChatFormat(wrapper).levels[word] in (sent, "no thinking")


def test_thinking_is_switched_off_by_any_of_its_names(ask):
    prompts = {
        ask(**fields)[0].prompt.tokens
        for fields in (
            {"reasoning_effort": "none"},
            {"enable_thinking": False},
            {"chat_template_kwargs": {"enable_thinking": False}},
        )
    }
    assert len(prompts) == 1 and prompts != {ask()[0].prompt.tokens}
    assert ask(enable_thinking=True)[0].prompt.tokens == ask()[0].prompt.tokens


def test_thinking_is_told_apart_and_counted(ask, session):
    session.text = "I think.\n</think>\n\nSo I am."
    _, reply = ask()
    message = reply["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("I think.", "So I am.")
    thought = session.tokenizer.encode("I think.\n</think>", add_special_tokens=False)
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == len(thought)


def test_tools_are_offered_and_their_calls_come_back_typed(ask, session):
    session.text = "</think>\n\n" + ONE + "\n" + TWO
    request, reply = ask(tools=TOOLS)
    assert list(request.text.tools) == TOOLS
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == [
        '{"city": "Paris", "days": 3}',
        '{"city": "東京 👩‍👩‍👧", "days": 10}',
    ]
    assert len({call["id"] for call in choice["message"]["tool_calls"]}) == 2


def test_without_parallel_calls_the_first_is_kept_and_the_others_are_told_of(ask, session):
    session.text = "</think>\n\n" + ONE + "\n" + TWO
    _, reply = ask(tools=TOOLS, parallel_tool_calls=False)
    assert len(reply["choices"][0]["message"]["tool_calls"]) == 1
    assert "1 further tool call" in reply["dflash"]["warnings"][0]


def test_tool_choice_none_offers_nothing(ask):
    request, _ = ask(tools=TOOLS, tool_choice="none")
    assert request.text.tools == () and request.prompt.tokens == ask()[0].prompt.tokens


def test_a_round_trip_of_tools_renders(ask, session):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    history = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm", "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
    ]
    request, _ = ask(messages=history, tools=TOOLS)
    text = session.tokenizer.decode(list(request.prompt.tokens))
    assert "<function=weather>" in text and "sunny" in text and "hm" in text and "Paris" in text


@pytest.mark.parametrize(("arguments", "fine"), [("", True), ("{}", True), ("{broken", False), ("[1]", False)])
def test_arguments_of_earlier_calls_are_json_or_refused(client, session, arguments, fine):
    session.text = SAID
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    history = [*USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "x"}]
    reply = client.chat(messages=history)
    assert reply.status_code == (200 if fine else 400) and (fine or "JSON" in reply.json()["error"]["message"])


def test_system_messages_are_merged_in_front_and_demoted_later_on(ask, session):
    messages = [
        {"role": "system", "content": "First rule."},
        {"role": "developer", "content": [{"type": "text", "text": "Second"}, {"type": "text", "text": " rule."}]},
        *USER,
        {"role": "system", "content": "A late word."},
    ]
    text = session.tokenizer.decode(list(ask(messages=messages)[0].prompt.tokens))
    assert "<|im_start|>system\nFirst rule.\n\nSecond rule.<|im_end|>" in text
    assert "<|im_start|>user\nA late word.<|im_end|>" in text and text.count("<|im_start|>system") == 1


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "x"}],
        [{"role": "assistant", "content": "x"}],
        [{"role": "tool", "content": "x"}],
    ],
)
def test_no_user_turn_is_a_clean_400(client, messages):
    reply = client.chat(messages=messages)
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "template_error"


def test_a_refusal_of_earlier_is_text(ask, session):
    part = {"type": "refusal", "refusal": "I will not."}
    for answer in ({"content": [part]}, {"content": None, "refusal": "I will not."}):
        request, _ = ask(messages=[*USER, {"role": "assistant", **answer}, *USER])
        assert "I will not." in session.tokenizer.decode(list(request.prompt.tokens))


def test_an_image_is_refused_as_content_and_not_looked_through(client):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    reply = client.chat(messages=[{"role": "user", "content": [{"type": "text", "text": "What is it?"}, part]}])
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "unsupported_content"


def test_unknown_fields_are_listed_and_cannot_write_headers(client, session):
    session.text = SAID
    reply = client.chat(**{"user": "me", "store": True, "evil\r\nX-Injected: 1": 1, "žluť": 2})
    assert reply.headers["X-DFlash2-Ignored-Params"] == "user, store, evil%0D%0AX-Injected%3A%201, %C5%BElu%C5%A5"
    assert "X-Injected" not in reply.headers
    tools = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
    assert client.chat(tools=tools).headers["X-DFlash2-Ignored-Params"] == "tools[].function.strict"


def test_only_the_served_model_answers(client, session):
    session.text = SAID
    assert [client.chat(model=name).status_code for name in ("scripted", "also-scripted")] == [200, 200]
    reply = client.chat(model="gpt-5")
    assert reply.status_code == 404 and reply.json()["error"]["code"] == "model_not_found"
    assert "'scripted'" in reply.json()["error"]["message"]


def test_log_probabilities_have_openai_s_shape(ask, session):
    session.text = "</think>\n\né漢"
    _, reply = ask(logprobs=True, top_logprobs=2)
    entries = reply["choices"][0]["logprobs"]["content"]
    assert all(set(entry) == {"token", "logprob", "bytes", "top_logprobs"} for entry in entries)
    spelled = bytes(byte for entry in entries for byte in entry["bytes"])
    assert spelled.decode() == session.text, "the end token is no text"
    assert [len(entry["top_logprobs"]) for entry in entries] == [2] * len(entries)
    assert ask(logprobs=True)[1]["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == []
    assert ask()[1]["choices"][0]["logprobs"] is None


def test_the_numbers_are_complete_and_finite(client, ask):
    _, reply = ask()
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    for name in (
        *("time_to_first_token", "total_time", "prompt_eval_duration", "generation_duration"),
        *("prompt_tokens_per_second", "generation_tokens_per_second"),
    ):
        assert usage[name] >= 0 and math.isfinite(usage[name]), name
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert {"cache_n", "prompt_n", "predicted_n", "draft_n", "draft_n_accepted"} <= set(reply["timings"])
    assert set(reply["dflash"]) == {
        *("mode", "block_size", "block_size_reason", "rounds", "rounds_by_width", "tokens_per_round"),
        *("draft_acceptance", "fallback_reason", "warnings"),
    }
    chunks = [data for _, data in client.stream(CHAT, {"messages": USER, "stream_options": {"include_usage": True}})]
    assert set(chunks[-1]["usage"]) == set(usage) and chunks[-1]["dflash"] == reply["dflash"]
    assert [set(chunk) & {"usage", "timings", "dflash"} for chunk in chunks[:-1]] == [{"usage"}] * (len(chunks) - 1)
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1), "as OpenAI says of its chunks"


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None}])
def test_a_stream_has_usage_only_when_asked_for(client, session, options):
    session.text = SAID
    chunks = [data for _, data in client.stream(CHAT, {"messages": USER, "stream_options": options})]
    assert all(len(chunk["choices"]) == 1 and "usage" not in chunk for chunk in chunks)
    assert "dflash" in chunks[-1] and chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_stream_begins_with_a_comment_and_one_chunk_a_round(client, session):
    session.text, session.round_size = SAID, 2
    reply = client.post(CHAT, {"messages": USER, "stream": True})
    assert reply.text.startswith(": keep-alive\n\n") and reply.text.endswith("data: [DONE]\n\n")
    assert reply.headers["content-type"].startswith("text/event-stream")
    rounds = -(-len(session.tokenizer.encode(SAID, add_special_tokens=False)) // 2)
    assert reply.text.count('"content":"') - 1 <= rounds


def test_a_failure_in_mid_stream_is_an_error_chunk_and_then_done(client, session):
    session.text, session.fail_after = SAID, 1
    reply = client.post(CHAT, {"messages": USER, "stream": True})
    assert reply.status_code == 200 and reply.text.endswith("data: [DONE]\n\n")
    assert '"error":{' in reply.text and '"choices":[]}' in reply.text and '"finish_reason":"' not in reply.text
    session.fail_after = None
    assert client.chat().status_code == 200


def test_a_failure_of_a_whole_reply_has_a_real_status(client, session):
    session.text, session.fail_after = SAID, 1
    assert client.chat().json()["error"]["code"] == "internal_error" and client.chat().status_code == 500
    session.error = RuntimeError("[metal::malloc] Unable to allocate 9 bytes")
    reply = client.chat()
    assert reply.status_code == 507 and reply.headers["x-should-retry"] == "false"
