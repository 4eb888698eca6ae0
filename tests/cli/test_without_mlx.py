"""The command line where MLX cannot be loaded: help works, and running says why it cannot and what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from machines import DLOPEN, intel_mac, linux, mac, rosetta_mac

ROOT = Path(__file__).parents[2]


@pytest.fixture
def without_mlx(tmp_path):
    """Runs the command where importing mlx.core fails as a missing library does."""
    stub = tmp_path / "mlx"
    stub.mkdir()
    (stub / "__init__.py").write_text("")
    (stub / "core.py").write_text("raise ImportError('dlopen(core.so, 2): Library not loaded: libmlx.dylib')")

    def run(*args):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
        command = [sys.executable, "-m", "dflash2_mlx", *args]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=120, stdin=subprocess.DEVNULL
        )

    return run


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["generate", "--help"], ["models"]])
def test_help_version_and_the_list_need_no_mlx(without_mlx, args):
    done = without_mlx(*args)
    assert done.returncode == 0 and done.stderr == ""


def test_running_quotes_what_failed_and_types_the_way_out(without_mlx):
    done = without_mlx("generate", "--model", "demo", "hello")
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("dflash2-mlx: MLX cannot be loaded: dlopen(core.so, 2): Library not loaded")
    assert line.endswith('pip install --force-reinstall "mlx[cpu]"')


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (rosetta_mac(), "x86-64 program that Rosetta translates"),
        (intel_mac(), "this Mac has an Intel processor"),
        (mac(version="13.6", mlx_fails=DLOPEN), "macOS 13.6 is too old: MLX needs macOS 14"),
        (mac(mlx_fails=DLOPEN), "--force-reinstall mlx mlx-metal"),
        (linux(system="Windows", mlx_fails=DLOPEN), "Windows has no MLX"),
    ],
)
def test_what_stands_in_the_way_is_named_for_every_kind_of_machine(cli, monkeypatch, machine, words):
    def fail(*_):
        raise DLOPEN

    for place in ("memory.verdict", "cli.main"):
        monkeypatch.setattr(f"dflash2_mlx.{place}.probe", lambda: machine)
    monkeypatch.setattr("dflash2_mlx.loading.load.load_opened", fail)
    outcome = cli("generate", "--model", "demo", "hello")
    assert outcome.code == 1 and outcome.err.count("\n") == 1 and words in outcome.err


def test_an_import_that_fails_although_mlx_works_is_no_excuse_about_the_machine(cli, monkeypatch):
    def fail(*_):
        raise ImportError("cannot import name 'x' from 'mlx_lm.utils'")

    monkeypatch.setattr("dflash2_mlx.loading.load.load_opened", fail)
    outcome = cli("generate", "--model", "demo", "hello")
    assert outcome.code == 1 and "unexpected ImportError" in outcome.err and "report" in outcome.err
