"""Energy, where macOS lets `powermetrics` be read (as root); elsewhere the reason why not. Knows no pair and no MLX."""

import os
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Self

_INTERVAL_MS = 200
_POWER = re.compile(r"^Combined Power \(CPU \+ GPU \+ ANE\):\s*([\d.]+)\s*mW", re.MULTILINE)


class PowerMeter:
    """Integrates what powermetrics reports while the `with` block runs; joules is of the last block."""

    def __init__(self) -> None:
        self.joules = 0.0

    def __enter__(self) -> Self:
        self._lines: list[str] = []
        self._began = time.perf_counter()
        self._process = subprocess.Popen(
            ["powermetrics", "--samplers", "cpu_power,gpu_power", "-i", str(_INTERVAL_MS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = time.perf_counter() - self._began
        self._process.terminate()
        self._process.wait(timeout=10)
        self._reader.join(timeout=10)
        watts = list(read_watts("".join(self._lines)))
        self.joules = seconds * sum(watts) / len(watts) if watts else 0.0

    def _read(self) -> None:
        assert self._process.stdout is not None
        self._lines.extend(self._process.stdout)


def read_watts(text: str) -> Iterator[float]:
    """The combined power of every sample in the output of powermetrics, in watts."""
    return (float(value) / 1000 for value in _POWER.findall(text))


def find_meter() -> tuple[PowerMeter | None, str]:
    """The meter of this machine and what it measures; where there is none, None and why."""
    if platform.system() != "Darwin":
        return None, "energy is read with macOS' powermetrics, and this is no Mac"
    if shutil.which("powermetrics") is None or os.geteuid() != 0:
        return None, "powermetrics wants root: run the same command with sudo to see joules a token"
    return PowerMeter(), "powermetrics, CPU + GPU + ANE, the whole machine"
