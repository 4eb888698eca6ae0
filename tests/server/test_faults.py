"""Faults that other servers of this kind have shown, one by one, where no other file tests for them."""

import json
import re
import time

import pytest

from asking import CHAT, COMPLETIONS, MESSAGES, RESPONSES, TOOLS, USER, Client, fold_chat
from dflash2_mlx.errors import PromptError
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.state import ServerState
from live import demo_state, wait_for
from scripted import ScriptedSession


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "word " * 18_000}]}),
        (COMPLETIONS, {"prompt": "word " * 18_000}),
        (COMPLETIONS, {"prompt": [5] * 18_000}),
        (MESSAGES, {"messages": [{"role": "user", "content": "word " * 18_000}], "max_tokens": 5}),
        (RESPONSES, {"input": "word " * 18_000}),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_beyond_the_context_is_a_400_with_both_numbers_before_any_header(client, session, path, body, stream):
    reply = client.post(path, {**body, "stream": stream})
    assert reply.status_code == 400 and session.requests == []
    message = reply.json()["error"]["message"]
    assert message.startswith("prompt is too long: ") and " tokens > 4096 maximum" in message
    assert path == MESSAGES or reply.json()["error"]["code"] == "context_length_exceeded"


CALL = [{"function": {"name": "f", "arguments": json.dumps({"text": "word " * 6 * 10**6})}}]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "word " * 6 * 10**6}]}),
        (COMPLETIONS, {"prompt": "word " * 6 * 10**6}),
        (CHAT, {"messages": USER, "tools": [{"function": {"name": "f", "description": "word " * 6 * 10**6}}]}),
        (CHAT, {"messages": [*USER, {"role": "assistant", "content": "", "tool_calls": CALL}, *USER]}),
    ],
)
def test_thirty_megabytes_of_prompt_are_refused_before_they_are_tokenised(client, path, body):
    began = time.monotonic()
    message = client.post(path, body).json()["error"]["message"]
    counted = int(re.match(r"prompt is too long: (\d+) tokens > 4096 maximum", message).group(1))
    assert time.monotonic() - began < 5 and counted == pytest.approx(6 * 10**6, rel=0.01)


def test_a_prompt_exactly_at_the_context_is_answered_with_nothing_and_one_below_it_with_one_token(client):
    for missing in (0, 1):
        reply = client.post(COMPLETIONS, {"prompt": [5] * (4096 - missing)}).json()
        assert reply["usage"]["completion_tokens"] == missing and reply["choices"][0]["finish_reason"] == "length"


MALFORMED = (
    "<tool_call>\nnot a call\n</tool_call>",
    "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
    "<tool_call>\n<function=weather>\n<parameter=city>\nPar",
)


@pytest.mark.parametrize("written", MALFORMED)
@pytest.mark.parametrize("stream", [True, False])
def test_a_malformed_call_comes_back_as_text(client, session, written, stream):
    session.text, session.round_size = "</think>\n\n" + written, 2
    body = {"messages": USER, "tools": TOOLS}
    if stream:
        folded = fold_chat(data for _, data in client.stream(CHAT, body))
        content, reason = folded["message"]["content"], folded["finish_reason"]
    else:
        (choice,) = client.post(CHAT, body).json()["choices"]
        content, reason = choice["message"]["content"], choice["finish_reason"]
    assert content == written and reason == "stop"


@pytest.mark.parametrize("round_size", range(1, 9))
@pytest.mark.parametrize("stop", ["STOP", "TOP and", "👧", "ld. S"])
def test_a_stop_string_split_over_rounds_never_leaks(client, session, round_size, stop):
    text = "The end of the world. STOP and more 👩‍👧 and more"
    session.text, session.round_size = "</think>\n\n" + text, round_size
    body = {"messages": USER, "stop": [stop, "never"]}
    folded = fold_chat(data for _, data in client.stream(CHAT, body))
    assert folded["message"]["content"] == text[: text.index(stop)] and folded["finish_reason"] == "stop"


def test_thinking_does_not_leak_where_the_prompt_opened_the_tag(client, session):
    session.text, session.round_size = "secret thoughts\n</think>\n\nanswer", 1
    folded = fold_chat(data for _, data in client.stream(CHAT, {"messages": USER}))
    assert folded["message"]["content"] == "answer" and folded["message"]["reasoning_content"] == "secret thoughts"


def test_a_stream_never_holds_half_a_character(client, session):
    session.text, session.round_size = "</think>\n\n👩‍👩‍👧🇯🇵漢字ď", 1
    reply = client.post(CHAT, {"messages": USER, "stream": True})
    assert "\ufffd" not in reply.text
    cut = client.post(CHAT, {"messages": USER, "max_tokens": 5}).json()
    assert cut["choices"][0]["finish_reason"] == "length"


def test_an_effort_can_be_mapped_and_an_unknown_one_is_a_400_not_a_500(make_state, wrapper):
    session = ScriptedSession(wrapper, text="</think>\n\nHi.")
    client = Client(make_state(session, ServeSettings(effort_map={"high": "medium", "ultra": "low"})))
    tokens = {}
    for word in ("high", "medium", "ultra", "low"):
        assert client.chat(reasoning_effort=word).status_code == 200
        tokens[word] = session.requests[-1].prompt.tokens
    assert tokens["high"] == tokens["medium"] and tokens["ultra"] == tokens["low"] != tokens["medium"]
    reply = client.chat(reasoning_effort="heroic")
    assert reply.status_code == 400 and "low, medium, high, xhigh" in reply.json()["error"]["message"]


@pytest.fixture(scope="module")
def real():
    """The bundled pair, reusing prefixes."""
    with demo_state(ServeSettings(cache_bytes=10**9)) as state:
        yield Client(state)


def asked(client: Client, system: str) -> tuple[str, int]:
    messages = [{"role": "system", "content": system}, *USER]
    reply = client.chat(messages=messages, temperature=0, max_tokens=8).json()
    return reply["choices"][0]["message"]["reasoning_content"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_one_bad_request_wipes_no_conversation_s_cache(real):
    cold = [asked(real, f"Conversation {number}. " * 9) for number in range(3)]
    assert real.chat(n=2).status_code == 400
    engine = real.state.worker.opened

    def broken(opened):
        for number, event in enumerate(opened.session.stream(engine_request(opened))):
            if number == 2:
                raise PromptError("it breaks in the middle")
            yield event

    seen: list[object] = []
    real.state.worker.submit(broken, seen.append)
    cancelled = real.state.worker.submit(broken, seen.append)
    cancelled.cancel()
    wait_for(lambda: len(seen) > 2 and real.state.worker.active == 0)
    warm = [asked(real, f"Conversation {number}. " * 9) for number in range(3)]
    assert [text for text, _ in warm] == [text for text, _ in cold]
    assert all(cached > 30 for _, cached in warm) and engine.kept.boundaries >= 3


def engine_request(opened):
    from dflash2_mlx.config import EngineParams, SamplingParams
    from dflash2_mlx.session.session import Request

    return Request(opened.model.render(USER, (), None), SamplingParams(), EngineParams(max_tokens=9))


def test_a_seed_gives_the_same_text_whatever_the_block_size_and_the_cache(real):
    body = {"messages": USER, "seed": 11, "temperature": 1.0, "max_tokens": 30}
    texts = {real.chat(**body).json()["choices"][0]["message"]["reasoning_content"] for _ in range(2)}
    plain = Client(ServerState(real.state.worker, ServeSettings(block_size=1)))
    reply = plain.chat(**body).json()
    assert reply["dflash"]["mode"] == "plain" and reply["dflash"]["fallback_reason"]
    assert {*texts, reply["choices"][0]["message"]["reasoning_content"]} == texts and len(texts) == 1


def test_arguments_nested_beyond_all_reason_are_a_400(client):
    call = {"function": {"name": "f", "arguments": "[" * 200_000}}
    reply = client.post(CHAT, {"messages": [*USER, {"role": "assistant", "content": "", "tool_calls": [call]}, *USER]})
    assert reply.status_code == 400 and "not valid JSON" in reply.json()["error"]["message"]
