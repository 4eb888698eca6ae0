"""Conversations in files: saved and loaded as JSON, exported as Markdown. Never replaces a file."""

import json
import re
import stat
from pathlib import Path

from dflash2_mlx.chat.conversation import Conversation, from_messages
from dflash2_mlx.errors import PromptError, UsageError
from dflash2_mlx.parsing import parse_json

_FORMAT, _VERSION = "dflash2-mlx chat", 1
_LONGEST = 64 * 2**20  # bytes of a file to read


def save(conversation: Conversation, name: str, model: str) -> Path:
    """Write the conversation to a new JSON file. Raises: UsageError if it exists or cannot be written."""
    content = {"format": _FORMAT, "version": _VERSION, "model": model, "messages": conversation.messages()}
    return _create(name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def load(name: str) -> Conversation:
    """The conversation in a file that `save` wrote. Raises: UsageError for anything else."""
    path = _path(name)
    try:
        content = parse_json(read_text(name))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON ({error}). Name a file that /save wrote.") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise UsageError(f"{path} is no saved chat. Name a file that /save wrote.")
    if content.get("version") != _VERSION:
        raise UsageError(
            f"{path} is a saved chat of version {content.get('version')!r}; this program reads {_VERSION}. Update it."
        )
    messages = content.get("messages")
    if not isinstance(messages, list):
        raise UsageError(f"{path} has no list of messages. Name a file that /save wrote.")
    try:
        return from_messages(messages)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def export(conversation: Conversation, name: str) -> Path:
    """Write the conversation to a new Markdown file, without the thinking. Raises: as `save`."""
    parts = [] if conversation.system is None else [f"**System:** {conversation.system}"]
    for turn in conversation.turns:
        parts += [f"## {_heading(turn.question)}", turn.answer + (" [stopped]" if turn.stopped else "")]
    return _create(name, "\n\n".join(parts) + "\n")


def read_text(name: str) -> str:
    """The text of a file. Raises: UsageError if it cannot be read, PromptError if it is not UTF-8 text."""
    path = _path(name)
    try:
        state = path.stat()
        if not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):  # a directory is refused in its own words
            raise UsageError(f"{path} is no file but a pipe or a device, which may never end. Name a text file.")
        if state.st_size > _LONGEST:
            raise UsageError(f"{path} holds {state.st_size} bytes, more than any context. Name a shorter file.")
        return path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}. Name a readable text file.") from None
    except UsageError:
        raise
    except UnicodeDecodeError as error:
        raise PromptError(f"{path} is not UTF-8 text (byte {error.start}). Convert it first.") from None
    except ValueError as error:  # a name that can be no file's
        raise UsageError(f"cannot read {path}: {error}. Name a readable text file.") from None


def quoted(name: str, text: str) -> str:
    """A file's text as part of a message: in a fence that is longer than any in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return f"{_path(name).name}:\n{fence}\n{text.rstrip()}\n{fence}\n\n"


def _heading(question: str) -> str:
    first, _, rest = question.partition("\n")
    return f"{first}\n{rest}" if rest else first


def _create(name: str, text: str) -> Path:
    path = _path(name)
    try:
        content = text.encode()
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise UsageError(f"{path} exists, and nothing is overwritten. Name another file.") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}. Name another place.") from None
    except ValueError as error:  # a name that can be no file's, or half a character in the text
        raise UsageError(f"cannot write {path}: {error}. Nothing was written.") from None
    return path


def _path(name: str) -> Path:
    if not name:
        raise UsageError("no file is named. Type, say: /save talk.json")
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)
