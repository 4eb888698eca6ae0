from importlib.resources import files
from pathlib import Path

import pytest
from mlx_lm.tokenizer_utils import load as load_wrapper

from dflash2_mlx.errors import PromptError, TemplateError, UsageError
from dflash2_mlx.text.messages import user_message
from dflash2_mlx.text.prompt import ChatFormat

USER = {"role": "user", "content": "Hi"}
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


@pytest.fixture(scope="module")
def demo():
    """The bundled pair's."""
    return ChatFormat(load_wrapper(Path(str(files("dflash2_mlx"))) / "demo" / "target"))


@pytest.fixture(scope="module")
def chat(wrapper):
    return ChatFormat(wrapper)


def test_the_tokens_are_those_of_the_tokenizers_own_template(chat, wrapper):
    expected = wrapper.apply_chat_template([USER], add_generation_prompt=True)
    assert list(chat.render([USER]).tokens) == expected
    assert wrapper.convert_tokens_to_ids("<|im_start|>") in expected


def test_a_think_tag_opened_by_the_prompt_starts_in_reasoning(chat):
    assert chat.render([USER]).channel == "reasoning"
    assert chat.render([USER], reasoning="off").channel == "answer"


def test_a_think_tag_in_the_users_text_opens_nothing(make_wrapper):
    prompt = ChatFormat(make_wrapper(PLAIN + "bot:")).render([{"role": "user", "content": "<think>"}])
    assert prompt.channel == "answer"


@pytest.mark.parametrize(
    ("word", "effort"),
    [("minimal", "low"), ("low", "low"), ("high", "xhigh"), ("xhigh", "xhigh"), ("max", "xhigh"), (None, "xhigh")],
)
def test_words_that_the_template_lacks_go_to_their_neighbour(chat, word, effort):
    assert f"effort {effort}<" in chat.render_text([USER], reasoning=word)


def test_none_and_off_close_the_think_block(chat):
    for word in ("off", "none"):
        assert chat.render_text([USER], reasoning=word).endswith("<think>\n\n</think>\n\n")


def test_the_levels_say_what_the_template_is_told(chat):
    assert chat.levels == {
        "off": "no thinking",
        "none": "no thinking",
        "minimal": "low",
        "low": "low",
        "medium": "medium",
        "high": "xhigh",
        "xhigh": "xhigh",
        "max": "xhigh",
    }


@pytest.mark.parametrize("word", ["", "extreme", "XHIGH"])
def test_an_unknown_level_names_the_allowed_ones(chat, word):
    with pytest.raises(UsageError, match="off, none, minimal, low, medium, high, xhigh, max"):
        chat.render([USER], reasoning=word)


def test_a_template_that_knows_high_gets_high(make_wrapper):
    template = "{% if reasoning_effort is defined and reasoning_effort == 'high' %}H{% endif %}" + PLAIN
    chat = ChatFormat(make_wrapper(template))
    assert chat.levels == {"high": "high", "max": "high"}


def test_a_default_level_that_changes_nothing_is_still_a_level(make_wrapper):
    template = "{{ {'low': 'L', 'high': ''}.get(reasoning_strength, '') }}" + PLAIN
    assert set(ChatFormat(make_wrapper(template)).levels) == {"minimal", "low", "high", "max"}


def test_a_template_without_levels_refuses_one(make_wrapper):
    with pytest.raises(UsageError, match="Leave it out"):
        ChatFormat(make_wrapper(PLAIN)).render([USER], reasoning="low")


def test_a_template_that_refuses_to_switch_thinking_off_has_no_off(make_wrapper):
    template = "{% if not enable_thinking %}{{ raise_exception('always on') }}{% endif %}" + PLAIN
    with pytest.raises(UsageError, match="cannot express"):
        ChatFormat(make_wrapper(template)).render([USER], reasoning="off")


@pytest.mark.parametrize(
    ("roles", "reason", "advice"),
    [
        (["user", "system"], "System message must come first", "at the beginning"),
        (["system"], "No user query", "Add a user message"),
        (["assistant"], "No user query", "Add a user message"),
        (["tool"], "No user query", "Add a user message"),
    ],
)
def test_a_refusal_gives_the_templates_reason_and_what_to_do(chat, roles, reason, advice):
    with pytest.raises(TemplateError, match=f"{reason}.*{advice}"):
        chat.render([{"role": role, "content": "x"} for role in roles])


def test_a_refusal_quotes_a_message_as_it_was_written(make_wrapper):
    chat = ChatFormat(
        make_wrapper("{% if add_generation_prompt %}{{ raise_exception(messages[0].content) }}{% endif %}")
    )
    with pytest.raises(TemplateError, match=r"messages: no <\|im_end\|> here\."):
        chat.render([{"role": "user", "content": "no <|im_end|> here"}])


def test_a_broken_template_is_a_template_error(make_wrapper):
    for template in ("{{ nothing.here.at.all }}", "{% if %}", "{{ 1 + 'a' }}"):
        with pytest.raises(TemplateError, match="refused"):
            ChatFormat(make_wrapper(template)).render([USER])


def test_a_model_without_template_points_to_raw_prompts(make_wrapper):
    chat = ChatFormat(make_wrapper(None))
    assert chat.levels == {}
    with pytest.raises(TemplateError, match="--raw"):
        chat.render([USER])
    assert chat.raw("ab").tokens[1:] == (ord("a"), ord("b"))


def test_half_a_character_is_refused_as_no_text(chat):
    for render in (lambda: chat.raw("a \udcff"), lambda: chat.render([{"role": "user", "content": "\ud83d"}])):
        with pytest.raises(PromptError, match="half a character"):
            render()


def test_a_raw_prompt_begins_as_the_tokenizer_begins_texts(chat, wrapper):
    assert chat.raw("ab").tokens[0] == wrapper.convert_tokens_to_ids("<|endoftext|>")


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_prompt_is_refused(chat, text):
    for ask in (chat.raw, user_message):
        with pytest.raises(PromptError, match="the prompt is empty"):
            ask(text)


def test_an_empty_user_turn_in_a_conversation_is_allowed(chat):
    assert "user\n<" in chat.render_text([{"role": "user", "content": ""}])


def test_a_user_message_may_have_a_system_message_before_it():
    assert user_message("Hi", "Be brief.") == [{"role": "system", "content": "Be brief."}, USER]


def test_no_messages_are_refused(chat):
    with pytest.raises(PromptError, match="no messages"):
        chat.render([])


@pytest.mark.parametrize("message", [{}, {"content": "x"}, "x", {"role": None}])
def test_a_message_without_role_is_refused(chat, message):
    with pytest.raises(PromptError, match="message 2 has no role"):
        chat.render([USER, message])


def test_text_parts_are_joined(chat):
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert "user\nHello<" in chat.render_text([{"role": "user", "content": parts}])


def test_a_part_that_is_no_text_is_named(chat):
    image = {"type": "image_url", "image_url": {"url": "x"}}
    with pytest.raises(PromptError, match="image_url"):
        chat.render([{"role": "user", "content": [image]}])


def test_no_content_is_empty_content(chat):
    assert "assistant\n<|im_end|>" in chat.render_text([USER, {"role": "assistant", "content": None}])


def test_earlier_reasoning_is_accepted_under_both_names(chat):
    for name in ("reasoning", "reasoning_content"):
        turn = {"role": "assistant", "content": "x", name: "why"}
        assert "<think>why</think>x" in chat.render_text([USER, turn])


def test_the_tools_reach_the_template(chat):
    assert "lookup" in chat.render_text([USER], tools=[{"type": "function", "function": {"name": "lookup"}}])


def with_arguments(arguments):
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    return [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]


@pytest.mark.parametrize("arguments", ['{"x": 1}', {"x": 1}])
def test_arguments_may_be_text_or_an_object(chat, arguments):
    assert "[x=1]" in chat.render_text(with_arguments(arguments))


def test_empty_arguments_are_an_empty_object(chat):
    assert "assistant\n<|im_end|>" in chat.render_text(with_arguments(""))


@pytest.mark.parametrize("arguments", ["{x", "[1]", "1", 3])
def test_arguments_that_are_no_object_are_named(chat, arguments):
    with pytest.raises(PromptError, match="tool call f in message 2"):
        chat.render(with_arguments(arguments))


def said(content, **more):
    return {"role": "assistant", "content": content, **more}


# trims what was said, and writes a think block only where there was thinking
QWEN = """
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>
{{ m.reasoning_content | trim }}
</think>

{% endif %}{{ m.content | trim }}<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""


def test_a_last_message_of_the_assistants_goes_on_right_behind_its_text(chat, make_wrapper):
    prompt = chat.render([USER, said(" The ans ")])
    assert chat.render_text([USER, said(" The ans ")]).endswith("<|im_start|>assistant\n The ans ")
    assert prompt.tokens[-1] == ord(" ") and (prompt.channel, prompt.continued) == ("answer", True)
    assert ChatFormat(make_wrapper(QWEN)).render_text([USER, said("The ans")]).endswith("assistant\nThe ans")


def test_the_bundled_template_goes_on_behind_its_think_block(demo):
    text = demo.render_text([USER, said("The ans", reasoning_content="why")])
    assert text.endswith("<|im_start|>assistant\n<think>\nwhy\n</think>\n\nThe ans")
    assert demo.render_text([USER, said("<think>\nwhy\n</think>\n\nThe ans")]) == text


@pytest.mark.parametrize("last", [said("<think>\nI wo "), said("", reasoning_content="I wo ")])
def test_open_thinking_goes_on_as_thinking(demo, make_wrapper, last):
    for chat in (demo, ChatFormat(make_wrapper(QWEN))):
        assert chat.render_text([USER, last]).endswith("<|im_start|>assistant\n<think>\nI wo ")
        assert chat.render([USER, last]).channel == "reasoning"


def test_open_thinking_goes_on_as_written_where_a_template_knows_no_reasoning(make_wrapper):
    chat = ChatFormat(make_wrapper(PLAIN))
    assert chat.render_text([USER, said("<think>I wo")]).endswith("assistant: <think>I wo")
    assert chat.render([USER, said("<think>I wo")]).channel == "reasoning"


def test_a_think_tag_behind_visible_text_opens_nothing(demo):
    assert demo.render([USER, said("The tag <think>")]).channel == "answer"


@pytest.mark.parametrize("last", [said(""), said("x", tool_calls=[{"function": {"name": "f", "arguments": "{}"}}])])
def test_a_turn_without_text_or_with_calls_is_over(demo, last):
    prompt = demo.render([USER, last])
    assert demo.render_text([USER, last]).endswith("<|im_start|>assistant\n<think>\n") and not prompt.continued


@pytest.mark.parametrize("content", ["m.content | upper", "m.content | tojson", "m.content[:3]", "''"])
def test_a_template_that_changes_the_text_cannot_go_on_from_it(make_wrapper, content):
    chat = ChatFormat(make_wrapper(f"{{% for m in messages %}}{{{{ {content} }}}}{{% endfor %}}"))
    with pytest.raises(TemplateError, match=r"cannot go on from it\. End the messages with a user message"):
        chat.render([USER, said('a "quote"')])


@pytest.mark.parametrize("more", ["wer is", " wer", ".\n\nSo"])
def test_boundaries_of_an_answer_that_goes_on_hold_for_what_follows_it(demo, more):
    opened = demo.render_for_reuse([USER, said("The ans")])
    for later in ([USER, said("The ans" + more)], [USER, said("The ans" + more), USER]):
        tokens = demo.render(later).tokens
        assert all(tokens[:place] == opened.tokens[:place] for place in opened.boundaries)
    assert opened.boundaries[-1] >= len(opened.tokens) - 3
