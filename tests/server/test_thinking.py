"""Efforts and switches on templates of every kind: nothing to do is an answer, what cannot be done is a 400."""

import pytest

import scripted
from asking import CHAT, MESSAGES, RESPONSES, USER, Client
from scripted import ScriptedSession

TURNS = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
CLOSED = "<think>\n\n</think>\n\n"
SWITCH = TURNS + "{% if enable_thinking | default(true) %}<think>\n{% else %}" + CLOSED + "{% endif %}"
TEMPLATES = {
    "switch": SWITCH,
    "switched off": SWITCH.replace("true", "false"),
    "always": TURNS + "<think>\n",
    "never": TURNS,
    "one level": TURNS + "{% if reasoning_effort is defined and reasoning_effort == 'high' %}!{% endif %}<think>\n",
}


@pytest.fixture
def on(make_state):
    """A client of a server whose model has that chat template."""

    def build(name: str) -> Client:
        tokenizer = scripted.tokenizer()
        tokenizer._tokenizer.chat_template = TEMPLATES[name]
        return Client(make_state(ScriptedSession(tokenizer, text="Hi.")))

    return build


def asked(client: Client, path: str, **fields: object) -> tuple[str | None, str | None]:
    """The channel that the answer begins in, and what is named as ignored; the error's code for a 400."""
    body = {"input": "hi"} if path == RESPONSES else {"messages": USER, "max_tokens": 9}
    reply = client.post(path, {**body, **fields})
    if reply.status_code != 200:
        assert reply.status_code == 400, reply.text
        return None, reply.json()["error"]["message"]
    prompt = client.state.worker.opened.session.requests[-1].prompt
    return prompt.channel, reply.headers.get("X-DFlash2-Ignored-Params")


WORDS = ("low", "medium", "high", "xhigh", "max")


@pytest.mark.parametrize("name", ["switch", "switched off"])
def test_with_a_switch_every_level_but_the_lowest_turns_thinking_on(on, name):
    client = on(name)
    for word in WORDS:
        assert asked(client, CHAT, reasoning_effort=word) == ("reasoning", None)
        assert asked(client, RESPONSES, reasoning={"effort": word}) == ("reasoning", None)
    for word in ("none", "minimal"):
        assert asked(client, CHAT, reasoning_effort=word) == ("answer", None)
    for kind in ("adaptive", "enabled"):
        assert asked(client, MESSAGES, thinking={"type": kind}) == ("reasoning", None)
    assert asked(client, MESSAGES, thinking={"type": "disabled"}) == ("answer", None)


@pytest.mark.parametrize("name", ["always", "never"])
def test_a_level_that_the_template_does_not_have_is_named_and_changes_nothing(on, name):
    client, channel = on(name), {"always": "reasoning", "never": "answer"}[name]
    for word in ("minimal", *WORDS):
        assert asked(client, CHAT, reasoning_effort=word) == (channel, "reasoning_effort")
        assert asked(client, RESPONSES, reasoning={"effort": word}) == (channel, "reasoning.effort")
    assert asked(client, MESSAGES, thinking={"type": "disabled"})[0] == (None if name == "always" else "answer")
    assert asked(client, CHAT, reasoning_effort="none")[0] == (None if name == "always" else "answer")


def test_what_claude_code_sends_by_default_is_answered_by_every_model(on):
    for name in TEMPLATES:
        channel, _ = asked(on(name), MESSAGES, thinking={"type": "adaptive"}, output_config={"effort": "high"})
        assert channel is not None, name


def test_thinking_that_cannot_be_is_named(on):
    assert asked(on("never"), MESSAGES, thinking={"type": "adaptive"}) == ("answer", "thinking")


def test_a_template_with_some_levels_takes_all_of_them(on):
    client = on("one level")
    assert asked(client, CHAT, reasoning_effort="high") == ("reasoning", None)
    assert asked(client, CHAT, reasoning_effort="medium") == ("reasoning", "reasoning_effort")


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_unknown_word_is_a_400_that_lists_the_known_ones(on, name):
    channel, message = asked(on(name), CHAT, reasoning_effort="zeal")
    assert channel is None and "'zeal'" in message and "high" in message
