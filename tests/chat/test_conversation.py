"""Turns, and what is kept of them in files."""

import json
from pathlib import Path

import pytest

from dflash2_mlx.chat import storage
from dflash2_mlx.chat.conversation import Conversation, Turn, from_messages
from dflash2_mlx.chat.history import keep
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
    path = tmp_path / "talk.json"
    storage.save(talk, path, "demo")
    loaded = storage.load(path)
    assert loaded.messages() == talk.messages()
    assert json.loads(path.read_text(encoding="utf-8"))["version"] == 1


@pytest.mark.parametrize("write", [lambda c, n: storage.save(c, n, "demo"), storage.export], ids=["save", "export"])
def test_no_file_is_overwritten(talk, tmp_path, write):
    path = tmp_path / "there"
    path.write_text("precious")
    with pytest.raises(UsageError, match="nothing is overwritten"):
        write(talk, path)
    assert path.read_text() == "precious"


def test_a_file_is_replaced_only_when_asked_and_keeps_its_mode(talk, tmp_path):
    path = tmp_path / "talk.json"
    path.write_text("old")
    path.chmod(0o600)
    storage.save(talk, path, "demo", replace=True)
    assert storage.load(path).messages() == talk.messages() and path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["talk.json"]


def test_the_last_conversation_is_kept_for_its_owner_and_nowhere_else(talk, tmp_path):
    path = tmp_path / "state" / "last_chat.json"
    for _ in range(2):
        keep(talk, path, "demo")
    assert storage.load(path).messages() == talk.messages() and path.stat().st_mode & 0o777 == 0o600
    keep(talk, Path("/proc/nowhere/last_chat.json"), "demo")  # and no complaint


@pytest.mark.parametrize("name", ["", "/nowhere/talk.json", "/proc/talk.json"])
def test_a_place_that_cannot_be_written_is_told(talk, name):
    with pytest.raises(UsageError):
        storage.save(talk, storage.path_of(name), "demo")


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
        storage.load(path)


def test_a_file_that_is_not_there_is_said_in_one_way(tmp_path):
    with pytest.raises(UsageError) as error:
        storage.load(tmp_path / "none")
    assert str(error.value).startswith(f"cannot read {tmp_path}/none: No such file") and "JSON" not in str(error.value)


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
    exported = tmp_path / "talk.md"
    storage.export(talk, exported)
    text = exported.read_text(encoding="utf-8")
    assert text.startswith("**System:** Be kind.\n\n## hi\n\nhello\n\n## 漢字?\n\n") and text.endswith("[stopped]\n")


def test_a_file_in_a_message_stands_in_a_longer_fence_than_its_own():
    assert storage.quoted(Path("/tmp/a.md"), "x\n````\ny\n````\n") == "a.md:\n`````\nx\n````\ny\n````\n`````\n\n"


@pytest.mark.parametrize("name", ["a\0b", "half a character"])
def test_what_no_file_can_be_called_or_hold_is_told_and_leaves_no_file(talk, tmp_path, name):
    talk.system = "Be \udcff."
    for write in (lambda path: storage.save(talk, path, "demo"), lambda path: storage.export(talk, path)):
        with pytest.raises(UsageError, match="Nothing was written"):
            write(tmp_path / name)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="cannot read"):
        storage.read_text(tmp_path / name)


def test_only_text_files_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\x00")
    with pytest.raises(PromptError, match="UTF-8"):
        storage.read_text(tmp_path / "a")
    for name in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DFlash2Error, match="cannot read"):
            storage.read_text(name)
