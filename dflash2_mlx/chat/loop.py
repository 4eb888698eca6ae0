"""Reads lines until the user leaves: runs commands, has messages answered. Knows the chat, no engine."""

import os
from dataclasses import dataclass

from dflash2_mlx.chat.chat import INTERRUPTED, Chat
from dflash2_mlx.chat.commands import run_command
from dflash2_mlx.chat.reader import Reader
from dflash2_mlx.errors import DFlash2Error, PromptError


@dataclass(slots=True)
class Loop:
    """Keeps a chat going."""

    chat: Chat
    _warned: bool = False  # Ctrl-C was pressed on an empty line, and nothing since

    def run(self, reader: Reader) -> int:
        """Chat until the user leaves or the input ends. The exit code."""
        while not self.chat.over:
            prefill, self.chat.prefill = self.chat.prefill, ""
            try:
                self.hear(reader.read(prefill))
            except EOFError:
                break
            except KeyboardInterrupt:
                self._interrupted(reader)
            except PromptError as error:
                self.chat.fail(error)
        return self.chat.code

    def hear(self, line: str) -> None:
        """One line from the user: a command, or a message to answer."""
        self._warned = False
        try:
            if line.startswith("/") and not line.startswith("//"):
                run_command(self.chat, line)
            elif line.strip():
                self.chat.answer(line.removeprefix("/") if line.startswith("//") else line)
        except DFlash2Error as error:
            self.chat.fail(error)
        except (RuntimeError, MemoryError) as error:  # of the device: what was said so far is worth more than a trace
            if os.environ.get("DFLASH2_DEBUG") == "1":
                raise
            told = f"the answer failed: {error}. The conversation is intact: /save FILE keeps it."
            self.chat.fail(DFlash2Error(told))
        if self.chat.conversation.turns:
            self.chat.program.keep(self.chat.conversation, self.chat.session.pair.model_name)
        if not self.chat.over:
            self.chat.stage.gap()

    def _interrupted(self, reader: Reader) -> None:
        """Ctrl-C at the prompt: a hint first, the end of the chat when it comes again."""
        if not self.chat.stage.interactive:
            self.chat.over, self.chat.code = True, INTERRUPTED
        elif self._warned and not reader.cleared:
            self.chat.over = True
        else:
            self.chat.stage.say("Ctrl-C again leaves, and so does Ctrl-D.")
            self._warned = True
