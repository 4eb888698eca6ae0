"""Turns what the user typed, piped or named into checked values. Knows no MLX."""

import os
import select
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from dflash2_mlx.cli.out import Out
from dflash2_mlx.config import SamplingParams
from dflash2_mlx.errors import PromptError, UsageError
from dflash2_mlx.parsing import parse_json

PATIENCE_S = 3  # for a pipe to begin


def read_prompt(argument: str | None, file: Path | None, *, stdin: bool = False) -> str:
    """The prompt: the argument or the file, then what comes from stdin, with an empty line between them.

    stdin: read it to its end whatever it is, as without a prompt and for the prompt `-`.
    Raises: PromptError for an empty prompt or text that is not UTF-8; UsageError for argument and file together.
    """
    if argument is not None and file is not None:
        raise UsageError("the prompt is given twice, as argument and as --prompt-file. Give one of them.")
    asked = stdin or argument == "-" or (argument is None and file is None)
    parts = [("" if argument == "-" else argument) if file is None else _read_file(file)]
    piped = sys.stdin is not None and not sys.stdin.isatty()  # None: closed by the caller
    if piped and (asked or _is_for_us()):
        parts.append(_decode(sys.stdin.buffer.read(), "stdin"))
    prompt = "\n\n".join(part.strip("\r\n") for part in parts if part and part.strip())
    refuse_broken_text("the prompt", prompt)
    if not prompt:
        raise PromptError('the prompt is empty: there is nothing to answer. Type: dflash2-mlx generate "Who are you?"')
    return prompt.replace("\r\n", "\n")


def _is_for_us() -> bool:
    """Whether stdin belongs to a prompt that is given: a pipe that begins soon, or a file that nobody has read from.

    A file further on is the input of a shell's loop; a pipe in which nothing comes may stay open for ever.
    """
    try:
        number = sys.stdin.fileno()
        kind = os.fstat(number).st_mode
    except OSError:  # no stream of the system's
        return True
    if stat.S_ISREG(kind):
        return os.lseek(number, 0, os.SEEK_CUR) == 0
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return False
    if select.select([number], [], [], PATIENCE_S)[0]:
        return True
    Out().note(f"dflash2-mlx: nothing came on stdin within {PATIENCE_S} s, so it is left out. --stdin waits for it.")
    return False


def _read_file(path: Path) -> str:
    try:
        return _decode(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"--prompt-file {path}: {error.strerror}. Give a readable text file.") from None


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"{source} is not UTF-8 text: byte 0x{data[error.start]:02x} at position {error.start}. Convert it first."
        ) from None


def read_tools(path: Path | None) -> tuple[Mapping[str, object], ...]:
    """The tools in a JSON file. Raises: UsageError unless it holds a list of function descriptions."""
    if path is None:
        return ()
    try:
        tools = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--tools {path}: {error.strerror}. Give a readable JSON file.") from None
    except ValueError as error:
        raise UsageError(f"--tools {path}: not JSON ({error}). Give a list of OpenAI function tools.") from None
    if not isinstance(tools, list) or not all(_is_tool(tool) for tool in tools):
        raise UsageError(
            f'--tools {path}: give a list of {{"type": "function", "function": {{"name": ..., "parameters": ...}}}}.'
        )
    return tuple(tools)


def _is_tool(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def read_bias(pairs: Sequence[str] | None) -> dict[int, float]:
    """`ID=NUMBER` pairs as a mapping. Raises: UsageError for anything else."""
    bias = {}
    for pair in pairs or ():
        token, _, number = pair.partition("=")
        try:
            bias[int(token)] = float(number)
        except ValueError:
            raise UsageError(f"--logit-bias {pair!r} is not ID=NUMBER. Type, say: --logit-bias 42=-5") from None
    return bias


def read_block_size(text: str) -> int | None:
    """`auto` or a number of rows. Raises: UsageError."""
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()) or int(text[:9]) < 1:
        raise UsageError(f"block-size is {text!r}. Give auto, or a number of rows from 1 (plain decoding).")
    return int(text[:9])


def sampling_asked(options: Mapping[str, object]) -> dict[str, object]:
    """The sampling settings among a command's options that the user gave. Raises: UsageError for bad values."""
    values = ((field.name, options.get(field.name)) for field in fields(SamplingParams))
    asked = {name: value for name, value in values if value is not None and value != {}}
    SamplingParams(**asked)  # type: ignore[arg-type]
    return asked


def refuse_broken_text(name: str, *texts: str | None) -> None:
    """Raise PromptError for an argument that was not UTF-8, which Python keeps as lone surrogates."""
    for text in texts:
        if text and any("\ud800" <= char <= "\udfff" for char in text):
            raise PromptError(f"{name} is not UTF-8 text. Convert it first, or set a UTF-8 locale (LC_ALL=C.UTF-8).")
