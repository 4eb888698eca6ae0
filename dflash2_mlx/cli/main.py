"""The command line: commands, and what every error becomes. Imports nothing heavy."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from dflash2_mlx import __version__
from dflash2_mlx.cli.bench import bench
from dflash2_mlx.cli.cache import cache
from dflash2_mlx.cli.chat import chat
from dflash2_mlx.cli.doctor import doctor
from dflash2_mlx.cli.generate import generate
from dflash2_mlx.cli.launch import launch
from dflash2_mlx.cli.models import models
from dflash2_mlx.cli.out import fail
from dflash2_mlx.cli.pull import pull
from dflash2_mlx.cli.serve import serve
from dflash2_mlx.cli.verify import verify
from dflash2_mlx.errors import DFlash2Error
from dflash2_mlx.memory.machine import probe

_INTERRUPTED, _CLOSED_PIPE = 130, 141

app = typer.Typer(
    name="dflash2-mlx",
    help="DFlash 2 speculative decoding on MLX: the target's own answers, faster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (generate, chat, serve, launch, doctor, pull, models, verify, cache):
    app.command()(command)
app.command("run", hidden=True)(chat)
app.command("list", hidden=True)(models)
app.command("ls", hidden=True)(models)
app.add_typer(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dflash2-mlx {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """DFlash 2 speculative decoding on MLX: the target's own answers, faster."""


def main() -> None:
    """Run the command line and exit: 0 done, 1 known error, 2 usage, 130 interrupted."""
    _open_streams()
    try:
        sys.exit(app(prog_name=app.info.name, standalone_mode=False))
    except Exception as error:
        if os.environ.get("DFLASH2_DEBUG") == "1":
            raise
        sys.exit(_explain(error))
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _open_streams() -> None:
    """Sinks for streams that the caller closed; characters that the terminal cannot show become question marks."""
    sink = Path(os.devnull)
    sys.stdout = sys.stdout or sink.open("w")
    sys.stderr = sys.stderr or sink.open("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _explain(error: Exception) -> int:
    """One line for an error that a user can cause; the exit code."""
    if isinstance(error, DFlash2Error):
        fail(str(error))
        return error.exit_code
    if isinstance(error, TyperException):
        return _misused(error)
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is flushed to a closed pipe at exit
        return _CLOSED_PIPE
    if isinstance(error, ImportError | RuntimeError) and (obstacles := probe().obstacles):
        for obstacle in obstacles:
            fail(obstacle)
        return 1
    if isinstance(error, OSError) and error.strerror:
        fail(f"cannot read or write {error.filename or 'the output'}: {error.strerror}. Free it or name another place.")
        return 1
    fail(f"an unexpected {type(error).__name__}: {error}. Please report it; DFLASH2_DEBUG=1 shows where.")
    return 1


def _misused(error: TyperException) -> int:
    """One line for words that the command line does not take; nothing where the help was printed instead."""
    context, problems = getattr(error, "ctx", None), getattr(error.__cause__, "errors", None)
    message = error.format_message()
    if problems:  # of pydantic, which reads the values
        option = getattr(getattr(error, "param", None), "opts", ["it"])[0]
        kind = "a whole number" if "int" in problems()[0]["type"] else "a number"
        message = f"{option} is {problems()[0]['input']!r}, not {kind}."
    if message:
        command = context.command_path if context else app.info.name
        end = "" if message.endswith((".", "?")) else "."
        fail(f"{message[:1].lower()}{message[1:]}{end} Type: {command} -h")
    return error.exit_code
