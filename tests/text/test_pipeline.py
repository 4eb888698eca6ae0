import pytest

from dflash2_mlx.events import Delta, ToolCall
from dflash2_mlx.text.channels import Channels
from dflash2_mlx.text.pipeline import TextPipeline

TOOLS = [{"type": "function", "function": {"name": "f"}}]


def pipeline(wrapper, *, stop=(), start="answer", tools=None):
    channels = Channels(wrapper, start=start, tools=tools)
    return TextPipeline.reading(wrapper, channels, stop=stop, end_tokens=frozenset(wrapper.eos_token_ids))


def ids(text):
    return list(text.encode())  # every byte is a token of its own


def test_a_block_becomes_one_delta_a_channel(wrapper):
    tokens = wrapper.encode("why\n</think>\n\nbecause", add_special_tokens=False)
    text = pipeline(wrapper, start="reasoning")
    assert text.push(tokens) == ([Delta("reasoning", "why"), Delta("answer", "because")], None)


def test_the_count_runs_through_the_token_that_completes_the_stop(wrapper):
    text = pipeline(wrapper, stop=["cde"])
    assert text.push(ids("ab")) == ([Delta("answer", "ab")], None)
    assert text.push(ids("cdefg")) == ([], 3)
    assert (text.stopped, text.finish(), text.push(ids("x"))) == ("cde", [], ([], 0))


def test_a_stop_string_inside_an_emoji_sequence_counts_its_last_byte(wrapper):
    text = pipeline(wrapper, stop=["👧"])
    tokens = ids("👩‍👧x")
    assert text.push(tokens) == ([Delta("answer", "👩‍")], len(tokens) - 1)


def test_a_stop_string_applies_to_reasoning(wrapper):
    text = pipeline(wrapper, stop=["z"], start="reasoning")
    assert text.push(ids("ab\nz</think>")) == ([Delta("reasoning", "ab")], 4)


def test_end_tokens_are_counted_and_never_shown(wrapper):
    channels = Channels(wrapper, start="answer")
    text = TextPipeline.reading(wrapper, channels, stop=["b"], end_tokens=frozenset(ids("e")))
    assert text.push(ids("aeb")) == ([Delta("answer", "a")], 3)


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_any_block_size_gives_the_same_text(wrapper, block):
    tokens, text = ids("漢字 👩‍👩‍👧🇯🇵"), pipeline(wrapper)
    events = [text.push(tokens[start : start + block])[0] for start in range(0, len(tokens), block)]
    assert "".join(event.text for new in [*events, text.finish()] for event in new) == "漢字 👩‍👩‍👧🇯🇵"


def test_an_unfinished_character_and_a_held_stop_come_at_the_end(wrapper):
    text = pipeline(wrapper, stop=["<stop>"])
    text.push(ids("<sto"))
    assert text.finish() == [Delta("answer", "<sto")]
    text = pipeline(wrapper)
    text.push(ids("漢")[:2])
    assert text.finish() == [Delta("answer", "\ufffd")]


def test_a_tool_call_comes_behind_the_text_before_it(wrapper):
    call = "<tool_call><function=f></function></tool_call>"
    text = pipeline(wrapper, tools=TOOLS)
    events, _ = text.push(wrapper.encode(f"x{call}", add_special_tokens=False))
    assert events == [Delta("answer", "x"), ToolCall("f", "{}", call)]


def test_a_stop_string_inside_a_tool_call_gives_back_its_beginning(wrapper):
    text = pipeline(wrapper, stop=["</function>"], tools=TOOLS)
    text.push(ids("<tool_call><function=f></function></tool_call>"))
    assert text.finish() == [Delta("answer", "<tool_call><function=f>")]
