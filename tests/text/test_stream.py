import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash2_mlx.errors import UsageError
from dflash2_mlx.events import Delta, ToolCall
from dflash2_mlx.text.channels import Channels
from dflash2_mlx.text.stream import TextPipeline, TokenDecoder

TRICKY = "👩‍👩‍👧🇯🇵漢字ď한국어 e\u0301 naïve 日本語🏳️‍🌈"


def decoded(tokenizer, ids, tags=()):
    decoder = TokenDecoder(tokenizer, tags=tags)
    return [decoder.push(token) for token in ids] + [decoder.flush()]


def spoken(events):
    return "".join(event.text for event in events)


def stopped(pieces, stop):
    channels = Channels.plain(stop)
    return "".join([spoken(channels.push(piece)) for piece in pieces] + [spoken(channels.flush())]), channels.stopped


def cut(text, generator):
    places = sorted(generator.sample(range(len(text) + 1), generator.randint(0, min(5, len(text)))))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def test_any_sequence_of_bytes_reads_as_one_utf8_stream(byte_level):
    generator = random.Random(7)
    pieces = [bytes([byte]) for byte in range(256)]
    pieces += [text.encode() for text in ("ab", " the", "\n\n", "漢字", "é", "👩", "🇯🇵")]
    pieces += [b"\xe6\xbc", b"\xa2\xe5\xad", b"\xff\xe2", b"\x80a"]
    for _ in range(3000):
        ids = [generator.randrange(len(pieces)) for _ in range(generator.randint(0, 12))]
        expected = b"".join(pieces[token] for token in ids).decode("utf-8", "replace")
        assert "".join(decoded(byte_level, ids)) == expected


def test_characters_of_many_tokens_come_whole(byte_level):
    parts = decoded(byte_level, list(TRICKY.encode()))
    assert "".join(parts) == TRICKY
    assert not any("\ufffd" in part for part in parts)
    assert parts[:4] == ["", "", "", "👩"]


def test_byte_level_text_equals_the_tokenizers_own_decoding(byte_level):
    ids = byte_level.encode(" a  b . the\n\n" + TRICKY, add_special_tokens=False)
    assert "".join(decoded(byte_level, ids)) == byte_level.decode(ids)


def test_an_unfinished_character_at_the_end_becomes_one_replacement(byte_level):
    assert decoded(byte_level, list("a漢".encode())[:-1]) == ["a", "", "", "\ufffd"]


def test_added_tokens_are_text_and_special_ones_are_not(byte_level):
    ids = byte_level.convert_tokens_to_ids(["</think>", "<|im_end|>", "«né»"])
    assert decoded(byte_level, ids) == ["</think>", "", "«né»", ""]


def test_a_special_token_that_is_part_of_a_tag_stays(byte_level):
    ids = byte_level.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert decoded(byte_level, ids, tags=["<|im_start|>self"]) == ["<|im_start|>", "", ""]


def test_ids_outside_the_vocabulary_have_no_text(byte_level):
    assert decoded(byte_level, [ord("a"), 100_000, len(byte_level), -1, ord("b")]) == ["a", "", "", "", "b", ""]


def test_other_tokenizers_stream_what_they_decode(other_tokenizer):
    generator = random.Random(11)
    for _ in range(300):
        ids = [generator.randrange(len(other_tokenizer)) for _ in range(generator.randint(1, 30))]
        if generator.random() < 0.5:  # mostly entries that are no single bytes
            ids = [max(token, len(other_tokenizer) - 19) if generator.random() < 0.8 else token for token in ids]
        expected = other_tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        assert "".join(decoded(other_tokenizer, ids)) == expected


@pytest.mark.parametrize("other_tokenizer", ["sentencepiece", "byte level in a sequence"], indirect=True)
def test_byte_tokens_of_other_tokenizers_make_whole_characters(other_tokenizer):
    parts = decoded(other_tokenizer, list(TRICKY.encode()))
    assert "".join(parts) == TRICKY


@pytest.mark.parametrize("other_tokenizer", ["byte level in a sequence"], indirect=True)
@pytest.mark.parametrize("invalid", range(12))
def test_a_character_after_many_invalid_bytes_is_whole(other_tokenizer, invalid):
    assert "".join(decoded(other_tokenizer, [0xFF] * invalid + list("漢".encode()))) == "\ufffd" * invalid + "漢"


@pytest.mark.parametrize("token", [0, 5])
def test_decoding_a_long_text_looks_at_few_tokens_a_push(other_tokenizer, token):
    class Counting:
        added_tokens_decoder = other_tokenizer.added_tokens_decoder
        backend_tokenizer = other_tokenizer.backend_tokenizer
        convert_ids_to_tokens = other_tokenizer.convert_ids_to_tokens
        seen = 0

        def decode(self, ids, **options):
            self.seen += len(ids)
            return other_tokenizer.decode(ids, **options)

    counting = Counting()
    decoded(counting, [min(token, len(other_tokenizer) - 1)] * 500)
    assert counting.seen <= 500 * 16


@pytest.mark.parametrize(
    ("pieces", "stop", "text", "matched"),
    [
        (["abcdefgh"], ["cde"], "ab", "cde"),
        (["ab", "c", "d", "ef"], ["cde"], "ab", "cde"),
        (["xabcd"], ["abc", "ab"], "x", "ab"),
        (["xabc"], ["bc", "abc"], "x", "abc"),
        (["x👩‍👩‍👧y"], ["👩‍👧"], "x👩‍", "👩‍👧"),
        (["hi 🇯🇵", "🇯🇵"], ["🇯🇵🇯🇵"], "hi ", "🇯🇵🇯🇵"),
        (["ab"], ["abc"], "ab", None),
        (["aab", "aac"], ["aaac"], "aabaac", None),
        (["ab"], [], "ab", None),
    ],
)
def test_text_ends_right_before_the_match_completed_first(pieces, stop, text, matched):
    assert stopped(pieces, stop) == (text, matched)


def test_an_empty_stop_string_is_refused():
    with pytest.raises(UsageError, match="non-empty"):
        Channels.plain([""])


def test_only_a_beginning_of_a_stop_string_is_held_back():
    channels = Channels.plain(["<end>"])
    assert [spoken(channels.push(piece)) for piece in ("a<", "<e", "x")] == ["a", "<", "<ex"]


def test_nothing_follows_a_match():
    channels = Channels.plain(["z"])
    assert [spoken(channels.push("az")), channels.push("b"), channels.flush()] == ["a", [], []]


def first_completed(text, stop):
    """The oracle: look at every end in order."""
    for end in range(1, len(text) + 1):
        ending = [string for string in stop if text[:end].endswith(string)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.text("ab<", max_size=20), st.lists(st.text("ab<", min_size=1, max_size=4), max_size=3), st.randoms())
def test_every_cutting_stops_like_one_piece(text, stop, generator):
    assert stopped(cut(text, generator), stop) == first_completed(text, stop)


TOOLS = [{"type": "function", "function": {"name": "f"}}]


def pipeline(wrapper, *, stop=(), start="answer", tools=None):
    channels = Channels(wrapper, start=start, tools=tools, stop=stop)
    return TextPipeline(wrapper, channels, frozenset(wrapper.eos_token_ids))


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


@pytest.mark.parametrize("stop", ["z", "\n\n"])
def test_a_stop_string_ends_the_answer_and_never_the_reasoning(wrapper, stop):
    text, tokens = pipeline(wrapper, stop=[stop], start="reasoning"), ids(f"ab{stop}c</think>\n\nd{stop}e")
    spoken = [Delta("reasoning", f"ab{stop}c"), Delta("answer", "d")]
    assert text.push(tokens) == (spoken, len(tokens) - 1) and text.stopped == stop


def test_end_tokens_are_counted_and_never_shown(wrapper):
    text = TextPipeline(wrapper, Channels(wrapper, start="answer", stop=["b"]), frozenset(ids("e")))
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
