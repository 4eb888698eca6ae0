"""Macs of every size and kind, Rosetta, Intel and Linux, each told by its facts."""

from dataclasses import dataclass, field
from pathlib import Path

from dflash2_mlx.memory.machine import Machine, Metal, System, probe

GIB = 2**30
# What Metal recommends to use on Macs with so many GiB of memory, as public logs show it.
WORKING_SETS = {16: 10.67, 24: 16.0, 32: 21.33, 64: 48.0, 128: 107.52}
DLOPEN = ImportError(
    "dlopen(/venv/lib/python3.12/site-packages/mlx/core.cpython-312-darwin.so, 0x0002): "
    "Library not loaded: @rpath/libmlx.dylib"
)


@dataclass
class FakeSystem(System):
    """A machine told by its facts: a Mac with an M4 Pro unless changed."""

    system: str = "Darwin"
    arch: str = "arm64"
    version: str = "15.5"
    brand: str = "Apple M4 Pro"
    memory_gib: int = 24
    gpu: bool = True
    mlx_fails: Exception | None = None
    values: dict[str, str] = field(default_factory=lambda: {"sysctl.proc_translated": "0", "hw.optional.arm64": "1"})
    packages: dict[str, str] = field(
        default_factory=lambda: {"mlx": "0.32.4", "mlx-metal": "0.32.4", "mlx-lm": "0.32.2"}
    )
    gxx: str | None = "/usr/bin/g++"
    free: int = 500 * 10**9

    def kind(self) -> str:
        return self.system

    def architecture(self) -> str:
        return self.arch

    def python_version(self) -> str:
        return "3.12.4"

    def sysctl(self, name: str) -> str | None:
        own = {"kern.osproductversion": self.version, "machdep.cpu.brand_string": self.brand}
        return {**own, **self.values}.get(name) if self.system == "Darwin" else None

    def os_version(self) -> str:
        return super().os_version() if self.system == "Darwin" else self.version

    def chip(self) -> str:
        return super().chip() if self.system == "Darwin" else self.brand

    def metal(self) -> Metal | None:
        if self.mlx_fails:
            raise self.mlx_fails
        if not self.gpu:
            return None
        return Metal(
            self.brand, int(WORKING_SETS[self.memory_gib] * GIB), int(WORKING_SETS[self.memory_gib] * 0.75 * GIB)
        )

    def installed(self, package: str) -> str | None:
        return self.packages.get(package)

    def memory_bytes(self) -> int:
        return self.memory_gib * GIB

    def compiler(self) -> str | None:
        return self.gxx

    def cache_folder(self) -> Path:
        return Path("/home/me/.cache/huggingface/hub")

    def free_bytes(self, folder: Path) -> int:
        return self.free


def mac(memory_gib: int = 24, chip: str = "Apple M4 Pro", **facts: object) -> Machine:
    """A Mac with Apple silicon."""
    return probe(FakeSystem(memory_gib=memory_gib, brand=chip, **facts))


def rosetta_mac() -> Machine:
    """An x86-64 Python on Apple silicon: no MLX wheel exists for it."""
    missing = ModuleNotFoundError("No module named 'mlx'")
    translated = {"sysctl.proc_translated": "1", "hw.optional.arm64": "1"}
    return mac(arch="x86_64", mlx_fails=missing, packages={}, values=translated)


def intel_mac() -> Machine:
    """A Mac without Apple silicon."""
    brand = "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz"
    missing = ModuleNotFoundError("No module named 'mlx'")
    return mac(chip=brand, arch="x86_64", mlx_fails=missing, packages={}, values={})


def linux(**facts: object) -> Machine:
    """A Linux machine."""
    packages = {"mlx": "0.32.4", "mlx-lm": "0.32.2"}
    told = {"system": "Linux", "arch": "x86_64", "version": "6.8.0", "brand": "AMD EPYC", "gpu": False}
    return probe(FakeSystem(packages=packages, **{**told, **facts}))
