"""Conversations in files: saved and loaded as JSON, exported as Markdown. Replaces no file unasked."""

import json
import re
import stat
from pathlib import Path

from dflash2_mlx.chat.conversation import Conversation, from_messages
from dflash2_mlx.errors import PromptError, UsageError
from dflash2_mlx.parsing import parse_json

_FORMAT, _VERSION = "dflash2-mlx chat", 1
_LONGEST = 64 * 2**20  # bytes of a file to read


def save(conversation: Conversation, path: Path, model: str, *, replace: bool = False) -> None:
    """Write the conversation to a JSON file. replace: it may be there.

    Raises: UsageError if it is there otherwise, or cannot be written.
    """
    content = {"format": _FORMAT, "version": _VERSION, "model": model, "messages": conversation.messages()}
    _write(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n", replace=replace)


def load(path: Path) -> Conversation:
    """The conversation in a file that `save` wrote. Raises: UsageError for anything else."""
    text = read_text(path)
    try:
        content = parse_json(text)
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


def export(conversation: Conversation, path: Path) -> None:
    """Write the conversation to a new Markdown file, without the thinking. Raises: as `save`."""
    parts = [] if conversation.system is None else [f"**System:** {conversation.system}"]
    for turn in conversation.turns:
        parts += [f"## {_heading(turn.question)}", turn.answer + (" [stopped]" if turn.stopped else "")]
    _write(path, "\n\n".join(parts) + "\n")


def read_text(path: Path) -> str:
    """The text of a file. Raises: UsageError if it cannot be read, PromptError if it is not UTF-8 text."""
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


def quoted(path: Path, text: str) -> str:
    """A file's text as part of a message: in a fence that is longer than any in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return f"{path.name}:\n{fence}\n{text.rstrip()}\n{fence}\n\n"


def _heading(question: str) -> str:
    first, _, rest = question.partition("\n")
    return f"{first}\n{rest}" if rest else first


def _write(path: Path, text: str, *, replace: bool = False) -> None:
    try:
        content = text.encode()
        if replace and path.exists():
            beside = path.with_name(f".{path.name}.new")
            beside.write_bytes(content)
            beside.chmod(path.stat().st_mode)
            beside.replace(path)
            return
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise UsageError(f"{path} exists, and nothing is overwritten. Name another file.") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}. Name another place.") from None
    except ValueError as error:  # a name that can be no file's, or half a character in the text
        raise UsageError(f"cannot write {path}: {error}. Nothing was written.") from None


def path_of(name: str) -> Path:
    """The file that is named, ~ being the user's home. Raises: UsageError for no name."""
    if not name:
        raise UsageError("no file is named. Type, say: /save talk.json")
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)
