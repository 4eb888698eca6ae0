"""What the chat looks like: drives `dflash2-mlx chat` with the bundled pair in a terminal, and draws what it shows.

`python scripts/chat_capture.py FOLDER` writes chat.txt and chat.svg there; with `--gallery` one picture of the chat and
one of everything that Markdown has for each width and palette. Needs the dev extra (pexpect, pyte).
"""

import argparse
import os
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pyte
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, TerminalTheme
from rich.text import Text

from dflash2_mlx.chat.look import Look
from dflash2_mlx.chat.screen import Screen
from dflash2_mlx.chat.view import ScreenView, ViewOptions
from dflash2_mlx.events import Delta

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from terminals import Terminal, VisibleScreen

QUESTIONS = (
    "Write a Python function that reverses a string.",
    "/think hide",
    "What is speculative decoding?",
    "/tokens",
)
MARKDOWN = """\
# A first heading
Text with **bold**, *italic*, `code`, ~~gone~~ and a [link](https://example.org/a_(b)); 2*3*4, snake_case, \\(x^2\\).
This sentence is long enough to be wrapped in every terminal that is narrower than a hundred and twenty columns.

- an item with `code` that goes on until it has to be wrapped, which hangs
  1. a nested one
  2. another
- [x] done
- [ ] to do

> A quote with **bold**
> over two lines

```python
def reverse(text: str) -> str:
    \"\"\"The text, last character first.\"\"\"  # a comment that is longer than a narrow terminal has columns
    return text[::-1] if len(text) > 1 else "x" * 3
```

| Model | Size | What it is good for |
|:------|-----:|---------------------|
| demo | 11 MB | `a|b`, trying things out without waiting |
| qwen3.8-27b | 16.4 GB | everything else, on a Mac with memory |

漢字かな交じり文は、幅の広い文字でも正しく折り返される。Emoji 👍 too.

***
Last words.
"""
_SOLARIZED = ("073642", "dc322f", "859900", "b58900", "268bd2", "d33682", "2aa198", "eee8d5")
_SOLARIZED_BRIGHT = ("002b36", "cb4b16", "586e75", "657b83", "839496", "6c71c4", "93a1a1", "fdf6e3")
_XTERM = ("000000", "cd0000", "00cd00", "cdcd00", "0000ee", "cd00cd", "00cdcd", "e5e5e5")
_XTERM_BRIGHT = ("7f7f7f", "ff0000", "00ff00", "ffff00", "5c5cff", "ff00ff", "00ffff", "ffffff")


def _theme(background: str, foreground: str, *colours: tuple[str, ...]) -> TerminalTheme:
    def rgb(text: str) -> tuple[int, int, int]:
        return int(text[:2], 16), int(text[2:4], 16), int(text[4:], 16)

    return TerminalTheme(rgb(background), rgb(foreground), *([rgb(text) for text in part] for part in colours))


PALETTES = {
    "dark": _theme("000000", "e5e5e5", _XTERM, _XTERM_BRIGHT),
    "light": _theme("ffffff", "000000", _XTERM, _XTERM_BRIGHT),
    "solarized-dark": _theme("002b36", "839496", _SOLARIZED, _SOLARIZED_BRIGHT),
    "solarized-light": _theme("fdf6e3", "657b83", _SOLARIZED, _SOLARIZED_BRIGHT),
}
_NAMES = {"default": "not dim", "brown": "yellow", "808080": "dim"}  # grey stands for dim in the terminal of the tests


def _style(cell: pyte.screens.Char) -> str:
    marks = {"bold": cell.bold, "italic": cell.italics, "underline": cell.underscore, "strike": cell.strikethrough}
    colour = _NAMES.get(cell.fg, cell.fg)
    return " ".join([colour, *(name for name, on in marks.items() if on), *(["reverse"] if cell.reverse else [])])


def drawn(screen: pyte.Screen, theme: TerminalTheme, path: Path) -> None:
    """Write what the terminal shows as a picture."""
    text = Text()
    for row in range(max(row for row in range(screen.lines) if screen.display[row].strip()) + 1):
        cells = [screen.buffer[row][column] for column in range(screen.columns)]
        text.append_text(Text.assemble(*((cell.data, _style(cell)) for cell in cells))).append("\n")
    console = Console(record=True, width=screen.columns, file=StringIO(), force_terminal=True)
    console.print(text, end="", highlight=False, no_wrap=True, overflow="ignore", crop=False)
    console.save_svg(str(path), title="dflash2-mlx chat", theme=theme)


def chat(columns: int, rows: int) -> pyte.Screen:
    """The terminal after a short chat with the bundled pair."""
    with TemporaryDirectory() as home:
        terminal = Terminal(environment={"XDG_STATE_HOME": home}, columns=columns, rows=rows)
        with terminal:
            terminal.ready()
            for number, question in enumerate(QUESTIONS, start=2):
                terminal.enter(question)
                terminal.ready(number)
        return terminal.screen


def markdown(columns: int) -> pyte.Screen:
    """The terminal after an answer that has everything."""
    screen = VisibleScreen(columns, 70, lambda answer: None)
    stream, written = pyte.Stream(screen), StringIO()
    look = Look(live=True, colour=True, unicode=True)
    view = ScreenView(Screen(written, look, lambda: os.terminal_size((columns, 70))), ViewOptions(), clock=lambda: 0.0)
    for start in range(0, len(MARKDOWN), 5):
        view.delta(Delta("answer", MARKDOWN[start : start + 5]))
    view.finish()
    stream.feed(written.getvalue().replace("\n", "\r\n"))
    return screen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    parser.add_argument("--columns", type=int, default=96)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--gallery", action="store_true", help="40, 80 and 120 columns, all palettes")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if not asked.gallery:
        screen = chat(asked.columns, asked.rows)
        text = "\n".join(line.rstrip() for line in screen.display).rstrip() + "\n"
        (asked.folder / "chat.txt").write_text(text, encoding="utf-8")
        drawn(screen, DEFAULT_TERMINAL_THEME, asked.folder / "chat.svg")
        print(text, end="")
        return 0
    for columns in (40, 80, 120):
        for name, screen in (("chat", chat(columns, 60)), ("markdown", markdown(columns))):
            for palette, theme in PALETTES.items():
                drawn(screen, theme, asked.folder / f"{name}-{columns}-{palette}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
