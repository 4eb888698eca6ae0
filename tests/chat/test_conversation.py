"""Turns, and what is kept of them in files."""

import json

import pytest

from dflash2_mlx.chat import storage
from dflash2_mlx.chat.conversation import Conversation, Turn, from_messages
from dflash2_mlx.errors import DFlash2Error, PromptError, UsageError


@pytest.fixture
def talk():
    return Conversation("Be kind.", [Turn("hi", "hello", "a greeting"), Turn("漢字?", "はい\n```\nx\n```", "", True)])


def test_messages_carry_the_reasoning_of_past_answers(talk):
    assert [(m["role"], m["content"]) for m in talk.messages("next")][::2] == [
        *(("system", "Be kind."), ("assistant", "hello"), ("assistant", "はい\n```\nx\n```"))
    ]  # fmt: skip
    assert talk.messages()[2]["reasoning_content"] == "a greeting"
    assert talk.messages("next")[-1] == {"role": "user", "content": "next"}


def test_undo_takes_the_newest_and_drop_the_oldest(talk):
    assert talk.undo().question == "漢字?"
    talk.drop(1)
    assert talk.turns == []
    for act in (talk.undo, lambda: talk.drop(1), lambda: talk.last):
        with pytest.raises(UsageError):
            act()


def test_a_saved_conversation_loads_as_it_was(talk, tmp_path):
    path = storage.save(talk, str(tmp_path / "talk.json"), "demo")
    loaded = storage.load(str(path))
    assert loaded.messages() == talk.messages()
    assert json.loads(path.read_text(encoding="utf-8"))["version"] == 1


@pytest.mark.parametrize("write", [lambda c, n: storage.save(c, n, "demo"), storage.export], ids=["save", "export"])
def test_no_file_is_overwritten(talk, tmp_path, write):
    path = tmp_path / "there"
    path.write_text("precious")
    with pytest.raises(UsageError, match="nothing is overwritten"):
        write(talk, str(path))
    assert path.read_text() == "precious"


@pytest.mark.parametrize("name", ["", "/nowhere/talk.json", "/proc/talk.json"])
def test_a_place_that_cannot_be_written_is_told(talk, name):
    with pytest.raises(UsageError):
        storage.save(talk, name, "demo")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "no saved chat"),
        ('{"format": "dflash2-mlx chat", "version": 2}', "version 2"),
        ('{"format": "dflash2-mlx chat", "version": 1}', "no list of messages"),
        ('{"format": "dflash2-mlx chat", "version": 1, "messages": [{"role": "user"}]}', "has no answer"),
        ('{"format": "dflash2-mlx chat", "version": 1, "messages": [1, 2]}', "no text under 'role'"),
        pytest.param("[" * 200_000, "not JSON", id="nested"),
    ],
)
def test_a_file_that_is_no_saved_chat_is_refused(tmp_path, content, words):
    path = tmp_path / "talk.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        storage.load(str(path))


def test_messages_out_of_turn_are_refused():
    user, assistant = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    with pytest.raises(UsageError, match="messages 1 and 2"):
        from_messages([assistant, user])
    with pytest.raises(UsageError, match="content"):
        from_messages([user, {"role": "assistant", "content": None}])
    with pytest.raises(UsageError, match="message 1 has no text"):
        from_messages([{"role": "user", "content": "half a character: \ud800"}, assistant])
    assert from_messages([]).turns == []


def test_an_export_reads_like_a_document(talk, tmp_path):
    text = storage.export(talk, str(tmp_path / "talk.md")).read_text(encoding="utf-8")
    assert text.startswith("**System:** Be kind.\n\n## hi\n\nhello\n\n## 漢字?\n\n") and text.endswith("[stopped]\n")


def test_a_file_in_a_message_stands_in_a_longer_fence_than_its_own():
    assert storage.quoted("/tmp/a.md", "x\n````\ny\n````\n") == "a.md:\n`````\nx\n````\ny\n````\n`````\n\n"


@pytest.mark.parametrize("name", ["a\0b", "half a character"])
def test_what_no_file_can_be_called_or_hold_is_told_and_leaves_no_file(talk, tmp_path, name):
    talk.system = "Be \udcff."
    for write in (lambda path: storage.save(talk, path, "demo"), lambda path: storage.export(talk, path)):
        with pytest.raises(UsageError, match="Nothing was written"):
            write(f"{tmp_path}/{name}")
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="cannot read"):
        storage.read_text(f"{tmp_path}/{name}")


def test_only_text_files_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\x00")
    with pytest.raises(PromptError, match="UTF-8"):
        storage.read_text(str(tmp_path / "a"))
    for name in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DFlash2Error, match="cannot read"):
            storage.read_text(str(name))
