"""The probe of the device: Macs of every size and kind, Rosetta, Intel, Linux, and MLX that does not load."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dflash2_mlx.machine import Machine, Metal, System, probe

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


@pytest.mark.parametrize("memory", sorted(WORKING_SETS))
@pytest.mark.parametrize(
    ("chip", "family"),
    [
        ("Apple M1", "M1"),
        ("Apple M2 Max", "M2"),
        ("Apple M3 Ultra", "M3"),
        ("Apple M4 Pro", "M4"),
        ("Apple M5 Max", "M5"),
    ],
)
def test_a_mac_is_told_by_its_chip_and_by_what_metal_recommends(memory, chip, family):
    machine = mac(memory, chip)
    assert (machine.device, machine.family, machine.name) == ("gpu", family, chip)
    assert machine.limit_bytes == int(WORKING_SETS[memory] * GIB) and machine.memory_bytes == memory * GIB
    assert not machine.obstacles and not machine.notes


def test_rosetta_is_named_with_the_way_out():
    machine = rosetta_mac()
    assert machine.rosetta and len(machine.obstacles) == 1
    assert "Rosetta" in machine.obstacles[0] and "arm64" in machine.obstacles[0]


def test_rosetta_is_seen_where_only_the_processor_tells():
    machine = mac(arch="x86_64", mlx_fails=DLOPEN, values={"hw.optional.arm64": "1"})
    assert machine.rosetta


def test_an_intel_mac_is_told_what_is_supported():
    (obstacle,) = intel_mac().obstacles
    assert "Intel" in obstacle and "M1 or newer" in obstacle and "Linux" in obstacle


def test_an_old_macos_is_refused_with_the_one_needed():
    (obstacle,) = mac(version="13.6.1", mlx_fails=DLOPEN).obstacles
    assert "macOS 13.6.1" in obstacle and "macOS 14" in obstacle


def test_windows_is_pointed_to_wsl():
    (obstacle,) = linux(system="Windows", mlx_fails=DLOPEN).obstacles
    assert "Windows" in obstacle and "WSL" in obstacle


def test_an_mlx_that_does_not_load_is_quoted_and_its_reinstall_typed():
    machine = mac(mlx_fails=DLOPEN)
    assert "dlopen" in (machine.mlx_error or "") and machine.limit_bytes is None
    assert "pip install --force-reinstall mlx mlx-metal" in machine.obstacles[0]
    assert '"mlx[cpu]"' in linux(mlx_fails=DLOPEN).obstacles[0]


def test_any_failure_of_mlx_is_an_answer_and_a_long_one_is_cut():
    machine = mac(mlx_fails=RuntimeError("no device\n" * 100))
    assert machine.mlx_error is not None and len(machine.mlx_error) < 260 and "\n" not in machine.mlx_error


def test_mlx_lm_may_be_missing():
    assert "mlx-lm" in mac(packages={"mlx": "0.32.4", "mlx-metal": "0.32.4"}).obstacles[0]


def test_a_mac_without_metal_computes_on_the_cpu_and_says_so():
    machine = mac(gpu=False)
    assert machine.device == "cpu" and machine.limit_bytes == 24 * GIB
    assert "virtual machine" in machine.notes[0] and not machine.obstacles


def test_parts_of_mlx_that_differ_are_noted():
    packages = {"mlx": "0.32.4", "mlx-metal": "0.31.1", "mlx-lm": "0.32.2"}
    assert "0.31.1" in mac(packages=packages).notes[0]


def test_linux_without_a_compiler_is_told_what_that_costs():
    assert not any("g++" in note for note in linux().notes)
    assert any("g++" in note and "slower and correct" in note for note in linux(gxx=None).notes)


def test_the_cpu_may_use_the_whole_memory():
    machine = linux(memory_gib=64)
    assert (machine.device, machine.limit_bytes, machine.family) == ("cpu", 64 * GIB, "")


def test_this_machine_answers():
    machine = probe()
    assert machine.versions["mlx"] and machine.chip and machine.memory_bytes and machine.mlx_error is None


def test_a_free_disk_is_asked_of_the_nearest_folder_that_exists(tmp_path):
    assert System().free_bytes(tmp_path / "not" / "yet") == pytest.approx(System().free_bytes(tmp_path), rel=0.01)


def test_a_kernel_value_that_does_not_exist_is_none(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert System().sysctl("hw.nothing") is None
