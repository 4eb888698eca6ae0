"""Levels of a template that has a switch for thinking and nothing else."""

import pytest

from dflash2_mlx.text.prompt import ChatFormat

USER = {"role": "user", "content": "Hi"}
SWITCH = "{{ messages[0].content }}{% if enable_thinking | default(true) %}<think>{% else %}<think></think>{% endif %}"


@pytest.mark.parametrize("default", ["true", "false"])
def test_every_level_but_the_lowest_turns_thinking_on(make_wrapper, default):
    chat = ChatFormat(make_wrapper(SWITCH.replace("true", default)))
    assert chat.levels == {
        **dict.fromkeys(("off", "none", "minimal"), "no thinking"),
        **dict.fromkeys(("low", "medium", "high", "xhigh", "max"), "thinking"),
    }
    assert {chat.render_text([USER], reasoning=word) for word in ("low", "max")} == {"Hi<think>"}
    assert chat.render_text([USER], reasoning="minimal") == "Hi<think></think>"
