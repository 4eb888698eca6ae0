"""Starts peer_runner.py processes and makes every rival package a Python of its own. Knows no MLX."""

import contextlib
import json
import os
import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RUNNER = Path(__file__).with_name("peer_runner.py")


@dataclass(frozen=True, slots=True)
class Peer:
    """A rival package, what its imports need beside this Python's packages, and how it is asked."""

    label: str
    package: str
    needs: tuple[str, ...]
    called: str
    adapts: bool = False  # left alone, it changes the block size as it goes, and is measured so too


_VLM = "mlx-vlm==0.7.10"
_VLM_NEEDS = ("requests", "urllib3", "charset-normalizer", "pillow")
PEERS = {
    "authors": Peer("authors' package", "dflash==0.1.0", (), "model_mlx.stream_generate"),
    "mlx-vlm": Peer(
        "mlx-vlm",
        _VLM,
        _VLM_NEEDS,
        "generate_step, on a copy of the target with its own tensor names; as it comes its blocks change between 3 "
        "rows and 5 and its greedy loop drafts without the selector, at a block size it is held there with it",
        adapts=True,
    ),
    "mlx-dspark": Peer(
        "mlx-dspark",
        "mlx-dspark==0.20.3",
        (_VLM, *_VLM_NEEDS),  # mlx-vlm for one import of a drafter that is not used here
        "dflash_generate, its drafter not quantised; it always drafts the trained width, the block size being what "
        "the target verifies",
    ),
}


class Runner:
    """One engine in its own process; `ask` sends a command and waits for the answer."""

    def __init__(
        self, python: str, engine: str, arguments: list[str] | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        root = str(Path(__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [python, str(_RUNNER), engine, *(arguments or [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {}), "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"},
        )

    def ask(self, do: str, **values: object) -> dict[str, Any]:
        """The answer to the command `do`. Raises: RuntimeError with the engine's reason where it has none."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # an engine that could not start has said why
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self._process.args))} ended without an answer to {do!r}")  # type: ignore[arg-type]
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def peer_python(folder: Path, name: str) -> tuple[str | None, str]:
    """The Python in `folder`/`name` that can import the peer `name`, and one line on how it came there.

    Without its pins: mlx, mlx-lm, huggingface_hub and transformers are those of the running Python, so that all sides
    run on the same builds. None where the package cannot be fetched.
    """
    peer, home = PEERS[name], folder / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    shared = own / "shared.pth"  # out of the way while installing: what this Python has by chance is needed there too
    shared.unlink(missing_ok=True)
    if not (own / f"{peer.package.replace('-', '_').replace('==', '-')}.dist-info").exists():
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
        install = [str(python), "-m", "pip", "install", *options, peer.package, *peer.needs]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
            return None, f"{peer.package} cannot be installed ({lines[-1]}); it is left out."
    shared.write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    return str(python), f"{peer.package} without its pins, on this Python's mlx and mlx-lm: {peer.called}"
