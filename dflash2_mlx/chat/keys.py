"""Ctrl-C, Esc, SIGTERM and the keyboard while an answer runs. Knows signals and terminal modes.

A signal never raises inside the engine: while an answer runs Ctrl-C is counted, and whoever runs it looks.
"""

import os
import re
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_INTERRUPTED, _TERMINATED = 130, 143
_PATIENCE = 3  # so many presses while one step of the engine takes its time end the program
_STDIN = 0
_ESCAPE = re.compile(rb"\x1b(?=\x1b|\Z)")  # Esc itself; arrows and Alt have something behind it,
_ESCAPE_S = 0.03  # at once
_SANE = b"\x1b[0m\x1b[?25h\x1b[?2004l\r\n"  # no style, a cursor, pastes as typed


class Interrupts:
    """Whether Ctrl-C or Esc was pressed during this answer. What else is typed is put into `typed`, if given."""

    def __init__(self, typed: bytearray | None = None) -> None:
        self.count = 0
        self._typed = typed

    def pressed(self) -> bool:
        """Whether the answer is to stop."""
        if self._typed is not None:
            keys = b""
            while _waiting(_ESCAPE_S if keys.endswith(b"\x1b") else 0) and (more := os.read(_STDIN, 4096)):
                keys += more
            self.count += len(_ESCAPE.findall(keys))
            self._typed += _ESCAPE.sub(b"", keys)
        return self.count > 0


class Keyboard:
    """The terminal as it was found, and who gets Ctrl-C. live: the terminal understands control sequences."""

    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._found = _attributes()
        self._typed = bytearray()

    def typed(self) -> bytes:
        """What was typed during answers; it is forgotten."""
        typed, self._typed = bytes(self._typed), bytearray()
        return typed

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM leave at once, whatever is being loaded. What is typed waits for the prompt."""
        with (
            _handling(signal.SIGINT, lambda number, frame: self.leave(_INTERRUPTED)),
            _handling(signal.SIGTERM, lambda number, frame: self.leave(_TERMINATED)),
            _unseen(),
        ):
            yield

    @contextmanager
    def chatting(self) -> Iterator[None]:
        """SIGTERM leaves with the terminal as it was found; Ctrl-C raises KeyboardInterrupt."""
        with (
            _handling(signal.SIGTERM, lambda number, frame: self.leave(_TERMINATED)),
            _handling(signal.SIGINT, signal.default_int_handler),
        ):
            yield

    @contextmanager
    def answering(self) -> Iterator[Interrupts]:
        """Ctrl-C and Esc are counted and raise nothing. What else is typed is not shown and waits for the prompt."""
        interrupts = Interrupts(self._typed if self._live and self._found is not None else None)

        def count(number: int, frame: object) -> None:
            interrupts.count += 1
            if interrupts.count >= _PATIENCE:
                self.leave(_INTERRUPTED)

        with _handling(signal.SIGINT, count), _unseen():
            yield interrupts

    def leave(self, code: int) -> None:
        """End the process now, with the terminal as it was found. Only plain writes: this runs in a signal handler."""
        if self._found is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(sys.__stdin__.fileno(), termios.TCSANOW, self._found)  # type: ignore[union-attr]
        with suppress(OSError):
            os.write(1 if self._live else 2, _SANE if self._live else b"\n")
        os._exit(code)


Attributes = list[int | list[bytes | int]]


def _attributes() -> Attributes | None:
    """The modes of the terminal on stdin; None if there is none."""
    try:
        return termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError, AttributeError):
        return None


@contextmanager
def _handling(number: signal.Signals, handler: "signal._HANDLER") -> Iterator[None]:
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def _unseen() -> Iterator[None]:
    """The terminal neither echoes keys nor waits for whole lines; Ctrl-C and Ctrl-Z still work."""
    found = _attributes()
    if found is None:
        yield
        return
    quiet = _attributes()
    assert quiet is not None and isinstance(quiet[3], int)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)

    def set_quiet(number: int = 0, frame: object = None) -> None:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, quiet)

    set_quiet()
    try:
        with _handling(signal.SIGCONT, set_quiet):  # behind Ctrl-Z the shell had its own
            yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, found)


def _waiting(seconds: float) -> bool:
    """Whether a key was pressed."""
    return bool(select.select([_STDIN], [], [], seconds)[0])
