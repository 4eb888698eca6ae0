"""Where a measurement was made: machine, versions, models, quantisation, seed, command; and how far memory could carry.

Knows pairs and the probe of the machine.
"""

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dflash2_mlx import __version__
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.memory.machine import probe

# Memory bandwidth of Apple's chips in GB/s (10^9 bytes), as the makers publish them; the longest name that fits counts.
BANDWIDTHS = {
    "M1": 68, "M1 Pro": 200, "M1 Max": 400, "M1 Ultra": 800,
    "M2": 100, "M2 Pro": 200, "M2 Max": 400, "M2 Ultra": 800,
    "M3": 100, "M3 Pro": 150, "M3 Max": 400, "M3 Ultra": 819,
    "M4": 120, "M4 Pro": 273, "M4 Max": 546,
    "M5": 153, "M5 Max": 614,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Model:
    """One checkpoint: name as given, folder's commit or None, and how its weights are stored."""

    name: str
    revision: str | None
    stored: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that a figure depends on and that can be known.

    exact: float32 on the CPU, where only near-ties may be rounded either way.
    """

    version: str
    commit: str | None
    command: str
    when: str
    chip: str
    device: str
    exact: bool
    memory_bytes: int | None
    system: str
    python: str
    packages: Mapping[str, str | None]
    preloaded: str | None
    load_average: float | None
    target: Model | None
    drafter: Model | None
    older_drafter: Model | None
    seed: int | None
    bandwidth: float | None

    @property
    def ceiling(self) -> float | None:
        """Plain tok/s if a step did nothing but read the target's weights once; None off Apple chips."""
        return self.bandwidth * 1e9 / self.target.bytes if self.bandwidth and self.target else None


def describe(pair: Pair | None, older: Pair | None = None, seed: int | None = None) -> Environment:
    """This machine, this command and these models."""
    machine, target = probe(), _target(pair) if pair else None
    return Environment(
        version=__version__,
        commit=_commit(),
        command=shlex.join(["dflash2-mlx", *sys.argv[1:]]),
        when=time.strftime("%Y-%m-%d %H:%M:%S %z"),
        chip=machine.chip,
        device=machine.name,
        exact=machine.device == "cpu" and target is not None and target.stored == "float32",
        memory_bytes=machine.memory_bytes,
        system=f"{machine.os_name} {machine.os_version}",
        python=platform.python_version(),
        packages=machine.versions,
        preloaded=os.environ.get("LD_PRELOAD"),
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        target=target,
        drafter=_drafter(pair) if pair else None,
        older_drafter=_drafter(older) if older else None,
        seed=seed,
        bandwidth=bandwidth_of(machine.chip) if machine.device == "gpu" else None,
    )


def bandwidth_of(chip: str) -> float | None:
    """GB/s of an Apple chip by its name; None for others, and for chips that are not in the table.

    M3 Max and M4 Max exist with fewer memory channels too; the table has the larger figure.
    """
    words = chip.removeprefix("Apple ").strip()
    return float(BANDWIDTHS[words]) if chip.startswith("Apple ") and words in BANDWIDTHS else None


def _target(pair: Pair) -> Model:
    opened = pair.opened.target
    stored = "quantised" if pair.target.quantized else _precision(opened.config)
    return Model(pair.model_name, opened.commit, stored, replace(pair, drafter=None).weight_bytes)


def _drafter(pair: Pair) -> Model | None:
    opened = pair.opened.drafter
    if pair.drafter is None or opened is None:
        return None
    stored = "quantised" if pair.drafter.config.quantization else _precision(opened.config)
    size = pair.weight_bytes - replace(pair, drafter=None).weight_bytes
    return Model(opened.name, opened.commit, f"{stored}, {pair.drafter.config.kind}", size)


def _precision(config: Mapping[str, object]) -> str:
    """What the config says about the weights' type."""
    text = config.get("text_config")
    stored = config.get("dtype") or config.get("torch_dtype") or (text.get("dtype") if isinstance(text, dict) else 0)
    return stored if isinstance(stored, str) else "not stated"


def _commit() -> str | None:
    """The commit of this checkout, where it is one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
