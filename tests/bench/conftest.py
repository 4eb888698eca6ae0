"""A clock that is told the time, the command line run in this process, and a tiny pair on disk."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench_fakes import FakeClock

from dflash2_mlx.cli.main import main
from folders import write_drafter, write_target


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        """The JSON document in the last line of stdout."""
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs `dflash2-mlx bench ARGS` in this process."""

    def run(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dflash2-mlx", "bench", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        code = exit_info.value.code
        return Outcome(code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny random target and its drafter on disk."""
    root = tmp_path_factory.mktemp("stored")
    return write_target(root / "target"), write_drafter(root / "drafter")
