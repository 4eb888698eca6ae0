"""What was typed and said before, in files where there is a place for them. Knows prompt_toolkit's history."""

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory

from dflash2_mlx.chat import storage
from dflash2_mlx.chat.conversation import Conversation
from dflash2_mlx.errors import UsageError

_LONGEST = 10_000  # characters of an entry that is kept; more would make the arrow keys slow


def history_path(environment: Mapping[str, str]) -> Path:
    """Where the history belongs on this system."""
    state = environment.get("XDG_STATE_HOME")
    home = Path(environment.get("HOME") or Path.home())
    if state:
        folder = Path(state)
    elif platform.system() == "Darwin":
        folder = home / "Library" / "Application Support"
    else:
        folder = home / ".local" / "state"
    return folder / "dflash2-mlx" / "chat_history"


class TurnHistory(FileHistory):
    """As FileHistory; a file that cannot be read or written is told once through `complain`, and no more used."""

    def __init__(self, path: Path, complain: Callable[[str], None]) -> None:
        super().__init__(str(path))
        self._path, self._complain, self._usable = path, complain, True

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        try:
            return list(super().load_history_strings())
        except OSError as error:
            self._give_up(error)
            return []

    def store_string(self, string: str) -> None:
        """Append one entry; pastes and other long ones live for this chat only."""
        if not self._usable or len(string) > _LONGEST or "[pasted #" in string:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
            super().store_string(string)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if self._usable:
            self._usable = False
            self._complain(f"what you type is not remembered after this chat: {self._path}: {error.strerror}.")


def last_chat_path(environment: Mapping[str, str]) -> Path:
    """Where the last conversation lies."""
    return history_path(environment).with_name("last_chat.json")


def keep(conversation: Conversation, path: Path, model: str) -> None:
    """Write the last conversation, for its owner only, where that can be done."""
    with suppress(OSError, UsageError):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        storage.save(conversation, path, model, replace=True)
