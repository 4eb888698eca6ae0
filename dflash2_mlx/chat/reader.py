"""Where turns come from: a line editor on a terminal, plain lines from anywhere else. Knows prompt_toolkit."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import BinaryIO, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.lexers import SimpleLexer
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from dflash2_mlx.chat.look import Look
from dflash2_mlx.chat.pastes import Pastes
from dflash2_mlx.errors import PromptError

_BURST = 32  # plain characters in one read: nobody types so fast, it is a paste
_STYLE = Style.from_dict(
    {
        "prompt": "bold ansimagenta",
        "own": "ansimagenta",
        "continuation": "dim",
        "completion-menu": "bg:default fg:default",
        "completion-menu.completion": "bg:default fg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default fg:default dim",
        "completion-menu.meta.completion.current": "bg:default fg:default dim",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default",
    }
)


class LineReader:
    """One line, one turn; empty lines are skipped. `prompt` goes to `out` in front of each, if there is one."""

    cleared = False  # Ctrl-C empties no line here

    def __init__(self, source: BinaryIO, out: TextIO | None = None, prompt: str = "") -> None:
        self._source, self._out, self._prompt = source, out, prompt
        self._count = 0

    def read(self, prefill: str = "") -> str:
        """The next line that is not empty. Raises: PromptError if it is not UTF-8 text, EOFError, KeyboardInterrupt."""
        while True:
            if self._out:
                self._out.write(self._prompt)
                self._out.flush()
            line = self._source.readline()
            self._count += 1
            if not line:
                raise EOFError
            try:
                text = line.decode("utf-8").strip("\r\n")
            except UnicodeDecodeError as error:
                raise PromptError(
                    f"line {self._count} is not UTF-8 text: byte 0x{line[error.start]:02x}. Convert it first."
                ) from None
            if text.strip():
                return text


class TerminalReader:
    """A line editor: arrows, history, Ctrl-R, multi-line, pastes in one piece, completion of commands.

    typed: takes what was typed while nobody read.
    """

    def __init__(self, look: Look, history: History, completer: Completer, typed: Callable[[], bytes]) -> None:
        self._pastes = Pastes()
        self._typed, self._input = typed, BurstInput(sys.stdin)
        self.cleared = False
        self._prompt: StyleAndTextTuples = [("class:prompt", look.symbol("› ", "> "))]
        self._more: StyleAndTextTuples = [("class:continuation", look.symbol("· ", ". "))]
        self._session: PromptSession[str] = PromptSession(
            history=history,
            completer=completer,
            complete_while_typing=Condition(lambda: self._session.default_buffer.text.startswith("/")),
            multiline=True,
            prompt_continuation=lambda width, number, soft: [("", "  ")] if soft else self._more,
            key_bindings=self._bindings(),
            enable_open_in_editor=True,
            enable_suspend=True,
            lexer=SimpleLexer("class:own"),
            reserve_space_for_menu=6,
            style=_STYLE,
            color_depth=None if look.colour else ColorDepth.DEPTH_1_BIT,
            input=self._input,
        )

    def read(self, prefill: str = "") -> str:
        """The next turn, pastes in full. Raises: EOFError for Ctrl-D, KeyboardInterrupt for Ctrl-C on an empty line."""
        self.cleared = False
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        parser.feed(self._typed().decode(errors="replace"))
        parser.flush()
        store_typeahead(self._input, bursts(keys))
        text = self._session.prompt(self._prompt, default=self._pastes.shorten(prefill))
        return self._pastes.expand(text)

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        editing = has_focus(DEFAULT_BUFFER)  # as opposed to searching in the history
        bindings.add("enter", filter=editing)(self._enter)
        bindings.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        bindings.add("c-c", filter=editing)(self._interrupt)
        bindings.add("<sigint>")(self._interrupt)
        bindings.add("backspace")(self._backspace)
        bindings.add(Keys.BracketedPaste)(self._paste)
        return bindings

    def _enter(self, event: KeyPressEvent) -> None:
        """Send; behind a backslash, begin a new line instead."""
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Empty the line; on an empty one, tell the loop."""
        if event.current_buffer.text:
            event.current_buffer.reset()
            self.cleared = True
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    def _backspace(self, event: KeyPressEvent) -> None:
        mark = self._pastes.mark_before(event.current_buffer.document.text_before_cursor)
        event.current_buffer.delete_before_cursor(len(mark[0]) if mark else 1)

    def _paste(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        removed, text = self._pastes.insert(buffer.document.text_before_cursor, event.data)
        if removed:
            buffer.delete_before_cursor(removed)
        buffer.insert_text(text)


Reader = LineReader | TerminalReader


class BurstInput(Vt100Input):
    """Takes many plain characters at once for a paste: as single keys, 100,000 of them would take a minute."""

    def read_keys(self) -> list[KeyPress]:
        """The keys that are there, runs of characters as one paste."""
        return bursts(super().read_keys())


def bursts(keys: Sequence[KeyPress]) -> list[KeyPress]:
    """The keys, with long runs of plain characters as one paste each."""
    merged: list[KeyPress] = []
    run: list[KeyPress] = []
    for key in (*keys, None):
        if key is not None and not isinstance(key.key, Keys) and len(key.key) == 1:
            run.append(key)
            continue
        text = "".join(press.data for press in run)
        merged += [KeyPress(Keys.BracketedPaste, text)] if len(run) >= _BURST else run
        run = []
        if key is not None:
            merged.append(key)
    return merged


class CommandCompleter(Completer):
    """Commands, the words they take, and file names. words: command -> its words, or None for a file name."""

    def __init__(self, helps: Mapping[str, str], words: Callable[[str], Sequence[str] | None]) -> None:
        self._helps, self._words = helps, words
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """What may stand at the cursor."""
        text = document.text_before_cursor
        if not text.startswith("/") or text.startswith("//") or "\n" in text:
            return
        command, space, argument = text.partition(" ")
        if not space:
            found = (name for name in self._helps if name.startswith(text))
            yield from (Completion(name, -len(text), display_meta=self._helps[name]) for name in found)
            return
        words = self._words(command)
        if words is None:
            yield from self._files.get_completions(Document(argument), complete_event)
            return
        last = argument.rpartition(" ")[2]
        yield from (Completion(word, -len(last)) for word in words if word.startswith(last))
