"""Text to the clipboard: through the terminal, which works over ssh, and through the system's own tool."""

import base64
import re
import shutil
import subprocess
from collections.abc import Callable

from dflash2_mlx.errors import UsageError

_TOOLS = (("pbcopy",), ("wl-copy",), ("xclip", "-selection", "clipboard"))
_CODE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_PATIENCE_S = 5


def copy(text: str, control: Callable[[str], bool]) -> list[str]:
    """Copy by every way there is; the ways in words. control: sends a sequence to the terminal, if there is one.

    Raises: UsageError where there is no way.
    """
    encoded = base64.b64encode(text.encode()).decode()
    ways = ["the terminal (OSC 52)"] if control(f"\x1b]52;c;{encoded}\x07") else []
    ways += [tool[0] for tool in _TOOLS if shutil.which(tool[0]) and _piped(tool, text)][:1]
    if not ways:
        raise UsageError("there is no clipboard here: no terminal, and none of pbcopy, wl-copy and xclip. Use /export.")
    return ways


def last_code(text: str) -> str:
    """The last code block of an answer. Raises: UsageError if it has none."""
    blocks = _CODE.findall(text)
    if not blocks:
        raise UsageError("the last answer has no code block. /copy takes the whole answer.")
    return str(blocks[-1][1])


def _piped(tool: tuple[str, ...], text: str) -> bool:
    try:
        done = subprocess.run(
            tool,
            input=text.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
