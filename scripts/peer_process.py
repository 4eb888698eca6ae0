"""Starts peer_runner.py processes and makes the authors' package a Python of its own. Knows no MLX."""

import json
import os
import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PEER = "dflash==0.1.0"
_RUNNER = Path(__file__).with_name("peer_runner.py")


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
        """The answer to the command `do`. Raises: RuntimeError when the process ended, its reason is on stderr."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{' '.join(map(str, self._process.args))} ended without an answer to {do!r}")  # type: ignore[arg-type]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def peer_python(folder: Path) -> tuple[str | None, str]:
    """The Python of `folder` that can import the authors' package, and one line on how it came there.

    Without its pins: mlx, mlx-lm and huggingface_hub, all that its MLX backend imports, are those of the running
    Python, so both sides run on the same builds. None where the package cannot be fetched.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (own / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
    if not any(own.glob("dflash-*.dist-info")):
        options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
        install = [str(python), "-m", "pip", "install", *options, PEER]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip gave no reason"]
            return None, f"{PEER} cannot be installed ({lines[-1]}); it is left out."
    return str(python), f"{PEER} without its pins, on this Python's mlx and mlx-lm"
