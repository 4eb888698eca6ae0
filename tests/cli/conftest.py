"""A tiny pair on disk, written once, and a way to run the command line in this process."""

import io
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash2_mlx.cli.main import main
from folders import write_drafter, write_target


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A target and a drafter that no test may change."""
    root = tmp_path_factory.mktemp("stored")
    return write_target(root / "target"), write_drafter(root / "drafter")


@pytest.fixture
def pair(stored: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the stored target and drafter, free to be broken."""
    return tuple(Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in stored)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs `dflash2-mlx ARGS` with `stdin` piped to it."""

    def run(*args: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dflash2-mlx", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        code = exit_info.value.code
        return Outcome(code if isinstance(code, int) else 0, *capfd.readouterr())

    return run
