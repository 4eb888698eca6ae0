"""Which text was drafted, as a client sees it that asks; and the request that wants plain decoding."""

import pytest

from asking import CHAT, USER, Client
from dflash2_mlx.events import Round
from dflash2_mlx.server.openai.drafted import DraftedText
from dflash2_mlx.server.settings import ServeSettings
from live import demo_state

ASKED = {"messages": USER, "stream_options": {"include_drafted": True}}


def drafted_text(*words: bytes) -> DraftedText:
    return DraftedText(lambda token: words[token])


def test_the_draft_tokens_of_a_round_are_marked_and_the_target_s_own_is_not():
    text = drafted_text(b"Hel", b"lo", b" there")
    text.see(Round((0, 1, 2), 7, 2))
    assert text.take("Hello there") == {
        "tokens": 3,
        "drafted": 7,
        "accepted": 2,
        "pieces": [["Hello", True], [" there", False]],
    }
    assert text.take("")["pieces"] == [] and text.take("")["tokens"] == 0


def test_tags_and_newlines_that_are_no_text_are_skipped():
    text = drafted_text(b"Well.", b"\n</think>", b"\n\n", b"Hi")
    text.see(Round((0, 1, 2, 3), 3, 3))
    assert text.take("Well.")["pieces"] == [["Well.", True]] and text.take("Hi")["pieces"] == [["Hi", False]]


def test_text_that_was_held_back_keeps_the_mark_of_its_own_round():
    text = drafted_text(b"a ST", b"OR", b"Y")
    text.see(Round((0,), 0, 0))
    assert text.take("a ")["pieces"] == [["a ", False]]
    text.see(Round((1, 2), 1, 1))
    assert text.take("STORY")["pieces"] == [["ST", False], ["OR", True], ["Y", False]]


def test_a_character_of_two_tokens_belongs_to_the_last_of_them():
    text = drafted_text(b"\xc3", b"\xa4!")
    text.see(Round((0, 1), 1, 1))
    assert text.take("ä!")["pieces"] == [["ä!", False]]


@pytest.mark.parametrize("said", ["▁a b", ""])
def test_text_that_the_tokens_do_not_spell_is_kept_whole(said):
    text = drafted_text(said.encode())
    text.see(Round((0,), 1, 1))
    assert "".join(piece for piece, _ in text.take("▁a  b c")["pieces"]) == "▁a  b c"


def test_a_stream_says_what_was_drafted_only_when_asked(client, session):
    session.text = "Thought.\n</think>\n\nHello there, *ä* and 👋."
    plain = [data for _, data in client.stream(CHAT, {"messages": USER})]
    assert not any("round" in chunk for chunk in plain)
    chunks = [data for _, data in client.stream(CHAT, ASKED)]
    tokens = 0
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        text = delta.get("content", "") + delta.get("reasoning_content", "")
        assert "".join(piece for piece, _ in chunk.get("round", {"pieces": []})["pieces"]) == text
        tokens += chunk.get("round", {"tokens": 0})["tokens"]
    marks = {mark for chunk in chunks if "round" in chunk for _, mark in chunk["round"]["pieces"]}
    assert marks == {True, False} and 0 < tokens <= chunks[-1]["timings"]["predicted_n"]


def test_a_request_may_ask_for_plain_decoding(client, session):
    session.text = "</think>\n\nHi."
    for speculate, block in ((None, None), (True, None), (False, 1)):
        assert client.chat(speculate=speculate).status_code == 200
        assert session.requests[-1].engine.block_size == block


@pytest.mark.slow
def test_the_bundled_pair_says_the_same_drafted_and_plain_and_every_character_has_its_mark():
    asked = {**ASKED, "temperature": 0, "stream_options": {"include_drafted": True, "include_usage": True}}
    with demo_state(ServeSettings()) as state:
        drafted, plain = (Client(state).stream(CHAT, {**asked, "speculate": word}) for word in (True, False))
    texts = []
    for events in (drafted, plain):
        rounds = [chunk["round"] for _, chunk in events if "round" in chunk]
        deltas = [choice["delta"] for _, chunk in events for choice in chunk["choices"]]
        text = "".join(delta.get("reasoning_content", "") + delta.get("content", "") for delta in deltas)
        assert "".join(piece for done in rounds for piece, _ in done["pieces"]) == text
        texts.append((text, sum(done["accepted"] for done in rounds), events[-1][1]["dflash"]["mode"]))
    (text, accepted, mode), (same, none, plain_mode) = texts
    assert text == same and accepted > 0 and none == 0 and (mode, plain_mode) == ("drafted", "plain")
