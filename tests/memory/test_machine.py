"""The probe of the device: Macs of every size and kind, Rosetta, Intel, Linux, and MLX that does not load."""

import pytest

from dflash2_mlx.memory.machine import System, probe
from machines import DLOPEN, GIB, WORKING_SETS, intel_mac, linux, mac, rosetta_mac


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
