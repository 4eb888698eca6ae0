"""What a terminal can show: colours, symbols, size. Knows the environment, nothing of what is shown."""

import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from rich.theme import Theme

THEME = Theme(
    {
        "chat.accent": "bold magenta",  # of the terminal's colours the one that light and dark ones show clearly
        "chat.code": "magenta",
        "chat.link": "underline",
        "chat.mark": "dim",
        "chat.note": "dim",
        "chat.error": "red",
        "chat.accepted": "green",
    }
)
_LINKING_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper", "Tabby", "rio")
_LINKING_TERMINALS = ("xterm-kitty", "xterm-ghostty", "foot", "alacritty", "wezterm", "contour")
COLOURLESS = {"chat.accent": "bold", "chat.code": "bold", "chat.error": "bold", "chat.accepted": "underline"}


@dataclass(frozen=True, slots=True)
class Look:
    """live: lines on screen can be redrawn. colour: other than the terminal's own. unicode: symbols beyond ASCII.

    hyperlinks: the terminal is known to follow links in the text (OSC 8).
    """

    live: bool
    colour: bool
    unicode: bool
    hyperlinks: bool = False

    @property
    def theme(self) -> Theme:
        """The styles that the chat uses by name."""
        return THEME if self.colour else Theme({**THEME.styles, **COLOURLESS}, inherit=False)

    def symbol(self, pretty: str, plain: str) -> str:
        """`pretty` where the terminal can show it."""
        return pretty if self.unicode else plain


def look_of(stdin: TextIO | None, stdout: TextIO, environment: Mapping[str, str], *, colour: bool = True) -> Look:
    """How to look here. stdin None: closed by the caller. colour False: the user wants none."""
    live = stdin is not None and stdin.isatty() and stdout.isatty() and (environment.get("TERM") or "dumb") != "dumb"
    coloured = live and colour and not environment.get("NO_COLOR")
    return Look(live, coloured, _unicode(stdout, environment), live and _hyperlinks(environment))


def terminal_size() -> os.terminal_size:
    """Columns and rows right now."""
    return shutil.get_terminal_size((80, 24))


def _hyperlinks(environment: Mapping[str, str]) -> bool:
    if environment.get("TMUX") or environment.get("TERM", "").startswith(("screen", "tmux")):
        return False  # not passed on, or only by new ones
    vte = environment.get("VTE_VERSION", "")
    return (
        environment.get("TERM_PROGRAM") in _LINKING_PROGRAMS
        or environment.get("TERM", "").startswith(_LINKING_TERMINALS)
        or (vte.isdecimal() and int(vte) >= 5000)
        or bool(environment.get("WT_SESSION") or environment.get("KONSOLE_VERSION"))
    )


def _unicode(stdout: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether locale and stream are UTF-8. A Mac without a locale is one reached by ssh: UTF-8 all the same."""
    if (stdout.encoding or "").lower().replace("-", "") != "utf8":
        return False
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "UTF-8" if platform.system() == "Darwin" else "C")
    return "utf8" in locale.lower().replace("-", "")
