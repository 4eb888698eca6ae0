import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.chat_templates.muse_spark import RESPONSE_FORMAT
from mlx_lm.tool_parsers import json_tools, muse_spark, qwen3_coder

from dflash2_mlx.events import Delta, ToolCall
from dflash2_mlx.text.channels import Channels, append_merged
from dflash2_mlx.text.tags import NoTags

QWEN = NoTags("<think>", "</think>", "<tool_call>", "</tool_call>", qwen3_coder.parse_tool_call)
NUMBER = {"type": "object", "properties": {"x": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": NUMBER}}]
CALL = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
MUSE = NoTags(
    tool_call_start=muse_spark.tool_call_start,
    tool_call_end=muse_spark.tool_call_end,
    tool_parser=muse_spark.parse_tool_call,
    response_transitions=RESPONSE_FORMAT["transitions"],
    response_initial_state=RESPONSE_FORMAT["initial_state"],
)


def answer(text):
    return Delta("answer", text)


def reasoning(text):
    return Delta("reasoning", text)


def read(pieces, start="answer", tools=None, tokenizer=QWEN, stop=()):
    channels, events = Channels(tokenizer, start=start, tools=tools, stop=stop), []
    for piece in pieces:
        append_merged(events, channels.push(piece))
    append_merged(events, channels.flush())
    return events


def letters(text, **options):
    """What comes of one character a push, after a check that one push gives the same."""
    events = read(text, **options)
    assert read([text], **options) == events
    return events


def test_thinking_opened_in_the_prompt_ends_at_its_closing_tag():
    assert letters("reason</think>answer", start="reasoning") == [reasoning("reason"), answer("answer")]


def test_newlines_next_to_the_think_tags_are_no_text():
    events = letters("<think>\nwhy\n\nso\n</think>\n\nbe\ncause\n")
    assert events == [reasoning("why\n\nso"), answer("be\ncause\n")]
    assert letters("\n\nwhy</think>", start="reasoning") == [reasoning("why")]


def test_an_empty_think_block_leaves_only_the_answer():
    assert letters("\n</think>\n\nyes", start="reasoning") == [answer("yes")]


def test_a_think_tag_after_visible_text_is_text():
    assert letters(" so <think>x</think>") == [answer(" so <think>x</think>")]


def test_a_half_think_tag_comes_back_at_the_end():
    assert letters("why\n</thi", start="reasoning") == [reasoning("why\n</thi")]
    assert letters("\n<thi") == [answer("\n<thi")]


def test_a_tool_call_is_one_event_with_typed_arguments():
    assert letters(f"Let me see.\n{CALL}", tools=TOOLS) == [answer("Let me see.\n"), ToolCall("f", '{"x": 1}', CALL)]


def test_nothing_of_a_tool_call_is_shown_before_it_is_complete():
    channels = Channels(QWEN, start="answer", tools=TOOLS)
    assert [event for letter in CALL[:-1] for event in channels.push(letter)] == []


def test_two_calls_come_one_after_the_other_without_the_newline_between():
    call = ToolCall("f", '{"x": 1}', CALL)
    assert letters(f"{CALL}\n{CALL}\n", tools=TOOLS) == [call, call]


def test_text_after_a_call_keeps_its_newlines():
    assert letters(f"{CALL}\n\ndone\n", tools=TOOLS)[1:] == [answer("\n\ndone\n")]


def test_a_tool_tag_inside_thinking_is_reasoning():
    assert letters(f"{CALL}</think>ok", start="reasoning", tools=TOOLS) == [reasoning(CALL), answer("ok")]


@pytest.mark.parametrize(
    "raw",
    [
        "<tool_call>nonsense</tool_call>",
        "<tool_call><function=f><parameter=x>1</tool_call>",
        CALL.replace("=f>", "=unknown>"),
        CALL[:-3],
        "<tool_call>",
    ],
)
def test_a_call_that_cannot_be_read_comes_back_as_it_was(raw):
    assert letters(f"a\n{raw}", tools=TOOLS) == [answer(f"a\n{raw}")]


def test_a_bad_call_after_a_good_one_keeps_the_newline_between():
    assert letters(f"{CALL}\n<tool_call></tool_call>", tools=TOOLS)[1:] == [answer("\n<tool_call></tool_call>")]


def test_without_tools_the_tags_are_text():
    assert letters(CALL) == [answer(CALL)]
    assert letters(CALL, tools=[]) == [answer(CALL)]


def test_an_answer_that_goes_on_is_in_its_middle():
    def first(text, start="answer", tokenizer=QWEN):
        channels = Channels(tokenizer, start=start, tools=TOOLS, continued=True)
        return [*channels.push(text), *channels.flush()]

    assert first("<think>x") == [answer("<think>x")]
    assert first("\nso</think>\n\nyes", "reasoning") == [reasoning("\nso"), answer("yes")]
    assert first("wer<|eom|>", tokenizer=MUSE) == [answer("wer")]
    assert first(CALL) == [ToolCall("f", '{"x": 1}', CALL)]


def test_a_plain_reader_takes_everything_as_answer():
    channels = Channels.plain()
    assert channels.push("<think>\na</think>") + channels.flush() == [answer("<think>\na</think>")]


BARE = CALL.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")


@pytest.mark.parametrize("end", ["", "\n</tool_call>", "</tool_call>\n"])
def test_a_whole_call_without_its_opening_tag_is_a_call(end):
    call = ToolCall("f", '{"x": 1}', BARE)
    assert letters(f"So.\n{BARE}{end}", tools=TOOLS) == [answer("So.\n"), call]
    assert letters(f"{BARE}{end}\n{CALL}", tools=TOOLS) == [call, ToolCall("f", '{"x": 1}', CALL)]
    assert letters(f"{BARE}{end}\nSo.", tools=TOOLS)[0] == call
    assert letters(f"why</think>{BARE}{end}", tools=TOOLS, start="reasoning") == [reasoning("why"), call]


def test_nothing_of_a_call_without_its_opening_tag_is_shown_before_it_is_complete():
    channels = Channels(QWEN, start="answer", tools=TOOLS)
    assert [event for letter in BARE[:-1] for event in channels.push(letter)] == []


@pytest.mark.parametrize(
    "text",
    [
        BARE.replace("=f>", "=unknown>"),
        "<function=f> is how it begins, and <function=f> again </tool_call>.",
        BARE[:-3],
        "<function=f>\n<para",
        "<function=f",
        "</tool_call>",
        "<function=f>\n<parameter=x>1</function>\n so it ends.",
    ],
)
def test_what_is_no_whole_call_of_a_function_on_offer_is_text(text):
    assert letters(text, tools=TOOLS) == [answer(text)]


def test_the_name_of_a_function_in_a_sentence_hides_no_call_behind_it():
    call = ToolCall("f", '{"x": 1}', BARE)
    assert letters(f"<function=f> so: {BARE}", tools=TOOLS) == [answer("<function=f> so: "), call]


def test_a_call_that_is_quoted_as_code_is_text():
    call = ToolCall("f", '{"x": 1}', BARE)
    for quoted in (f"Write `{BARE}`.", f"Write:\n```xml\n{BARE}\n```\n"):
        assert letters(quoted, tools=TOOLS) == [answer(quoted)]
        assert letters(quoted + BARE, tools=TOOLS) == [answer(quoted), call]


def test_calls_without_opening_tags_are_for_formats_that_name_functions():
    tags = {"tool_call_start": "<tool_call>", "tool_call_end": "</tool_call>"}
    tokenizer = NoTags(**tags, tool_parser=json_tools.parse_tool_call)
    assert letters(BARE, tools=TOOLS, tokenizer=tokenizer) == [answer(BARE)]
    assert letters(BARE, tools=None) == [answer(BARE)]
    assert letters(BARE, tools=TOOLS, start="reasoning") == [reasoning(BARE)]


def test_the_end_of_a_function_inside_a_value_is_a_part_of_it():
    value = "</function> and </parameter> are tags"
    text = BARE.replace("\n1\n", f"\n{value}\n")
    assert letters(text, tools=TOOLS) == [ToolCall("f", json.dumps({"x": value}), text)]
    assert letters(f"<tool_call>{text}</tool_call>", tools=TOOLS)[0].arguments == json.dumps({"x": value})


@pytest.mark.parametrize("between", ["", "\n", "\n</tool_call>\n<tool_call>\n"])
def test_two_functions_in_one_block_are_two_calls(between):
    text = f"<tool_call>\n{BARE}{between}{BARE.replace('1', '2')}\n</tool_call>"
    assert [event.arguments for event in letters(text, tools=TOOLS)] == ['{"x": 1}', '{"x": 2}']


def test_two_functions_of_which_one_is_not_on_offer_are_text():
    text = f"<tool_call>\n{BARE}{BARE.replace('=f', '=g')}\n</tool_call>"
    assert letters(text, tools=TOOLS) == [answer(text)]


@pytest.mark.parametrize(("value", "arguments"), [("one", '{"x": "one"}'), ("", "{}"), ("1.5", '{"x": "1.5"}')])
def test_a_call_survives_a_value_that_does_not_fit(value, arguments):
    text = CALL.replace("\n1\n", f"\n{value}\n")
    assert letters(text, tools=TOOLS) == [ToolCall("f", arguments, text)]


def test_half_a_character_written_as_an_escape_leaves_arguments_that_can_be_sent():
    tokenizer = NoTags(tool_call_start="[", tool_call_end="]", tool_parser=lambda text, tools: json.loads(text))
    (call,) = letters('[{"name": "f", "arguments": {"x": "\\ud83d"}}]', tools=TOOLS, tokenizer=tokenizer)
    assert call.arguments.encode() and json.loads(call.arguments) == {"x": "\ud83d"}


@pytest.mark.parametrize(
    ("stop", "shown"),
    [("x", "b\n\n"), ("b\n\nx", ""), ("\n\n", "b"), ("<tool_call>", "b\n\nx "), ("#", "b\n\nx <tool_call>z")],
)
def test_a_stop_string_is_looked_for_outside_the_reasoning(stop, shown):
    events = letters(f"a{stop}a</think>\n\nb\n\nx <tool_call>z", start="reasoning", stop=[stop])
    assert events == [reasoning(f"a{stop}a"), *([answer(shown)] if shown else [])]


def test_a_stop_string_ends_what_may_have_become_a_tag():
    assert letters("\n", stop=["\n"]) == []
    assert letters("a\n</think>", start="reasoning", stop=["\n"]) == [reasoning("a")]
    assert letters("a<function=f>b", tools=TOOLS, stop=["<func"]) == [answer("a")]
    assert letters("<function=f>\n<par", tools=TOOLS, stop=["par"]) == [answer("<function=f>\n<")]


@pytest.mark.parametrize("written", ['{"x": 1}', {"x": 1}])
def test_a_parser_may_return_several_calls(written):
    def parser(text, tools):
        return [{"id": "1", "name": "f", "arguments": written}, {"name": "f"}]

    tokenizer = NoTags(tool_call_start="[", tool_call_end="]", tool_parser=parser)
    expected = [ToolCall("f", '{"x": 1}', "[..]"), ToolCall("f", "{}", "[..]")]
    assert letters("[..]", tools=TOOLS, tokenizer=tokenizer) == expected


BAD_SET = {"name": "f", "arguments": {"x": {1}}}
BAD_NUMBER = {"name": "f", "arguments": {"x": float("nan")}}


@pytest.mark.parametrize("result", [None, "f", {"name": "f", "arguments": [1]}, BAD_SET, BAD_NUMBER])
def test_a_parser_result_that_is_no_call_gives_the_text_back(result):
    tokenizer = NoTags(tool_call_start="[", tool_call_end="]", tool_parser=lambda text, tools: result)
    assert letters("[..]", tools=TOOLS, tokenizer=tokenizer) == [answer("[..]")]


def test_a_call_without_closing_tag_is_read_at_the_end():
    def parser(text, tools):
        return json.loads(text)

    tokenizer = NoTags(tool_call_start="[CALL]", tool_call_end="", tool_parser=parser)
    text = '[CALL]{"name": "f", "arguments": {"x": 2}}'
    assert letters(text, tools=TOOLS, tokenizer=tokenizer) == [ToolCall("f", '{"x": 2}', text)]


def test_a_format_with_message_headers_is_read_by_its_headers():
    call = '<atem:function_calls><atem:invoke name="f"></atem:invoke></atem:function_calls>'
    text = f" to=self<|message|>why<|eom|>assistant to=user<|message|>so<|eom|>assistant to=f<|message|>{call}"
    spoken = [reasoning("why"), answer("so")]
    assert letters(text, tools=TOOLS, tokenizer=MUSE) == [*spoken, ToolCall("f", "{}", call)]
    assert letters(text, tokenizer=MUSE) == [reasoning("why"), answer(f"so{call}")]


def test_every_format_with_parameters_written_out_is_read_by_the_schema():
    inside = '<atem:invoke name="f"><atem:parameter name="x">12345678901234567890</atem:parameter>'
    inside += '<atem:parameter name="y">90210</atem:parameter></atem:invoke>'
    schema = {"properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    for text in (inside, inside.removesuffix("</atem:invoke>"), inside * 2):
        calls = letters(f"to=f<atem:function_calls>{text}</atem:function_calls>", tools=tools, tokenizer=MUSE)
        assert {call.arguments for call in calls} == {'{"x": 12345678901234567890, "y": "90210"}'}


def test_no_format_leads_from_reasoning_into_a_call():
    edges = {"reasoning": [("<call>", "tool"), ("<end>", "normal")]}
    tokenizer = NoTags(tool_call_start="<call>", tool_parser=lambda text, tools: [], response_transitions=edges)
    events = letters("a<call>b<end>c", start="reasoning", tools=TOOLS, tokenizer=tokenizer)
    assert events == [reasoning("a<call>b"), answer("c")]


def test_an_answer_without_the_header_it_should_have_is_not_lost():
    assert letters("hello", tokenizer=MUSE) == [answer("hello")]


PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", CALL, BARE, "\n", "a", "<", "</", "<tool", " "]
PIECES += ["<function=", "f>", "<parameter=x>", "</parameter>", "</function>", "`"]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(PIECES), max_size=8),
    st.sampled_from(["answer", "reasoning"]),
    st.booleans(),
    st.sampled_from([(), ("a\n", "<tool_call>"), ("</function>", "\n\n")]),
)
def test_every_cutting_reads_like_one_piece(pieces, start, offered, stop):
    options = {"start": start, "tools": TOOLS if offered else None, "stop": stop}
    assert read(pieces, **options) == letters("".join(pieces), **options)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text("ab\n<> ", max_size=30))
def test_text_without_tags_passes_unchanged(text):
    assert "".join(event.text for event in letters(text, tools=TOOLS)) == text
