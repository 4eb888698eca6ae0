"""A stub Hub, an empty cache, no waiting, and the command line run in this process."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import close_session
from stub_hub import Repo, StubHub

from dflash2_mlx.cli.main import main

WEIGHTS = {f"layer.{i}": np.random.default_rng(i).normal(size=(64, 64)).astype(np.float32) for i in range(4)}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


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
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubHub]:
    """A running stub Hub that huggingface_hub takes for the Hub."""
    close_session()
    with StubHub() as stub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", stub.url)
        template = stub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield stub
        close_session()


@pytest.fixture
def repo(hub: StubHub) -> Repo:
    """The repository `some/model`: weights in one file, a config, code and a picture that nobody needs."""
    files = {"config.json": b'{"model_type": "qwen3"}', "model.safetensors": safetensors(), "tokenizer.json": b"{}"}
    return hub.add("some/model", {**files, "run_me.py": b"print('code')", "picture.png": b"png"})


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs `dflash2-mlx ARGS` with nothing on stdin."""

    def run(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["dflash2-mlx", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        code = exit_info.value.code
        return Outcome(code if isinstance(code, int) else 0, *capfd.readouterr())

    return run


def safetensors() -> bytes:
    """64 kB of weights in one file."""
    header, data = {}, b""
    for name, tensor in WEIGHTS.items():
        span = [len(data), len(data) + tensor.nbytes]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": span}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data
