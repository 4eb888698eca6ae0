"""Every test runs on the CPU backend, whose float32 results are exact enough to compare with `==`.

Here is what several folders use: the command line run in this process, a tiny pair on disk, and a stub Hub.
"""

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import pytest

from folders import write_drafter, write_target

mx.set_default_device(mx.cpu)


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
    """Runs `dflash2-mlx ARGS` with `stdin` piped to it."""
    from dflash2_mlx.cli.main import main

    def run(*args: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dflash2-mlx", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        code = exit_info.value.code
        return Outcome(code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny random target and its drafter on disk, which no test may change."""
    root = tmp_path_factory.mktemp("stored")
    return write_target(root / "target"), write_drafter(root / "drafter")


@pytest.fixture
def pair(stored: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of the stored target and drafter, free to be broken."""
    return tuple(Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in stored)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; no token, no proxy, and nothing waits."""
    for name, value in (
        ("HF_HUB_CACHE", str(tmp_path / "cache")),
        ("HF_HUB_OFFLINE", False),
        ("HF_HUB_DISABLE_XET", True),
    ):
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    for name in ("HF_TOKEN", "HF_ENDPOINT", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "DFLASH2_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda _: None)
    return tmp_path / "cache"


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """A running stub Hub that huggingface_hub takes for the Hub."""
    from huggingface_hub import close_session
    from store.stub_hub import StubHub

    close_session()
    with StubHub() as stub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", stub.url)
        template = stub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield stub
        close_session()
