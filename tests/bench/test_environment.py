"""What is recorded around a measurement, and the ceiling of memory bandwidth."""

from dataclasses import replace

import pytest

from dflash2_mlx.api import load
from dflash2_mlx.bench.energy import find_meter, read_watts
from dflash2_mlx.bench.environment import bandwidth_of, describe
from dflash2_mlx.bench.facts import facts

POWER = """
CPU Power: 900 mW
GPU Power: 10000 mW
Combined Power (CPU + GPU + ANE): 10900 mW
**** GPU usage ****
Combined Power (CPU + GPU + ANE): 12100 mW
"""


@pytest.mark.parametrize(
    ("chip", "value"),
    [("Apple M4 Pro", 273), ("Apple M4 Max", 546), ("Apple M5 Max", 614), ("Apple M3 Ultra", 819), ("Apple M9", None),
     ("AMD EPYC", None), ("M4 Pro", None)],
)  # fmt: skip
def test_bandwidths_are_those_of_apples_chips_and_of_no_other(chip, value):
    assert bandwidth_of(chip) == value


def test_everything_a_figure_depends_on_is_recorded():
    found = describe(load("demo"), seed=7)
    assert found.chip and found.system and found.packages["mlx"] and found.seed == 7 and found.command
    assert found.target and found.target.stored == "float32" and found.target.bytes > 8_000_000
    assert found.drafter and found.drafter.stored == "float32, DFlash 2" and found.ceiling is None
    words = dict(facts(found))
    assert {"command", "chip", "target", "drafter", "packages"} <= words.keys() and "memory ceiling" not in words


def test_the_ceiling_reads_the_targets_weights_once_a_step():
    found = describe(load("demo"))
    assert found.target
    on_a_mac = replace(found, bandwidth=273.0, target=replace(found.target, bytes=15_132_802_048))
    assert on_a_mac.ceiling == pytest.approx(18.04, abs=0.01)
    assert dict(facts(on_a_mac))["memory ceiling"].startswith("18.0 tok/s plain: 273 GB/s")


def test_power_is_read_from_every_sample():
    assert list(read_watts(POWER)) == pytest.approx([10.9, 12.1])


def test_off_a_mac_energy_is_not_measured_and_says_why(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Linux")
    meter, why = find_meter()
    assert meter is None and "no Mac" in why


def test_a_mac_without_root_is_told_to_use_sudo(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/powermetrics")
    monkeypatch.setattr("os.geteuid", lambda: 501)
    assert "sudo" in find_meter()[1]
