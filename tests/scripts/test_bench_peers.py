"""The measurement beside other packages: who takes part, what a rival is left out for, and what is compared."""

import json
import subprocess
import sys
import sysconfig
from argparse import Namespace
from pathlib import Path

import mlx.core as mx
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import bench_peers
import peer_process
from peer_engines import as_mlx_vlm_reads_it

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "dflash2_mlx" / "demo"


def packages(venv: Path) -> Path:
    return Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))


def fake_venv(folder: Path, script: str) -> None:
    """A virtual environment whose Python is a shell script."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    packages(folder).mkdir(parents=True)


def test_a_package_that_cannot_be_installed_is_left_out_with_the_reason(tmp_path):
    fake_venv(tmp_path / "authors", "echo 'ERROR: no such version' >&2; exit 1")
    python, note = peer_process.peer_python(tmp_path, "authors")
    assert python is None
    assert note == "dflash==0.1.0 cannot be installed (ERROR: no such version); it is left out."


def test_a_rival_is_installed_once_beside_this_pythons_packages(tmp_path):
    asked = tmp_path / "asked"
    home = tmp_path / "mlx-vlm"
    fake_venv(home, f"echo $* >> {asked}; mkdir {packages(home)}/mlx_vlm-0.7.10.dist-info")
    for _ in range(2):
        assert peer_process.peer_python(tmp_path, "mlx-vlm")[0] == str(home / "bin" / "python")
    (words,) = asked.read_text().splitlines()
    assert "--no-deps" in words and "mlx-vlm==0.7.10" in words
    assert (packages(home) / "shared.pth").read_text().strip() == sysconfig.get_path("purelib")


def test_an_engine_that_cannot_load_says_why():
    runner = peer_process.Runner(sys.executable, "mlx-lm", ["--model", "nowhere", "--draft", "nowhere"])
    with pytest.raises(RuntimeError, match=r"Error: .*nowhere.* \(\w+\.py:\d+\)"):
        runner.ask("versions")
    runner.close()


def test_a_rival_that_cannot_run_the_pair_is_left_out_with_the_reason(tmp_path, monkeypatch):
    class FakeRunner:
        def __init__(self, python: str, engine: str, *_: object) -> None:
            self._engine = engine

        def ask(self, do: str, **_: object) -> dict[str, object]:
            if self._engine == "mlx-vlm":
                raise RuntimeError("ValueError: it needs a GPU")
            return {}

        def close(self) -> None: ...

    monkeypatch.setattr(bench_peers, "Runner", FakeRunner)
    monkeypatch.setattr(bench_peers, "peer_python", lambda _, name: ("python", f"{name} is here"))
    options = Namespace(model=tmp_path, draft=tmp_path, peers=["authors", "mlx-vlm"], peer_venvs=tmp_path)
    runners, notes = bench_peers.start(options, {})
    assert list(runners) == ["ours", "mlx-lm", "authors"]
    assert notes[1] == "mlx-vlm: mlx-vlm==0.7.10 cannot run this pair, so it is left out: ValueError: it needs a GPU"


def test_every_text_is_compared_with_plain_mlx_lm():
    ways = bench_peers.entries(["mlx-dspark"], widest=8)
    for way in ways:
        way.tokens = [[5, 6, 7], [5, 6, 8 if way.engine == "mlx-dspark" else 7]]
    found = bench_peers.differences(ways)
    assert found == [f"mlx-dspark, block {size}: prompt 2 differs from token 3 of 3" for size in (5, 8)]


def test_the_target_written_for_mlx_vlm_holds_the_same_numbers(tmp_path):
    assert as_mlx_vlm_reads_it(DEMO / "target", tmp_path) == tmp_path
    written, original = (mx.load(str(folder / "model.safetensors")) for folder in (tmp_path, DEMO / "target"))
    assert isinstance(written, dict) and isinstance(original, dict)
    assert {f"language_model.{name}" for name in original} == set(written)
    assert all(mx.array_equal(part, written[f"language_model.{name}"]) for name, part in original.items())
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "qwen3_5_text"
    assert sum(config["rope_parameters"]["mrope_section"]) * 2 == 8  # a quarter of 32 dimensions is rotated


@pytest.mark.slow
def test_the_bundled_pair_is_measured_beside_plain_mlx_lm_alone():
    words = ["--peers", "--repeat", "1", "--prompts", "2", "--max-tokens", "8", "--prefill", "64", "--blas", "none"]
    command = [sys.executable, str(ROOT / "scripts" / "bench_peers.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["equal"] and set(answer["versions"]) == {"ours", "mlx-lm"}
    assert answer["rates"]["dflash2-mlx, block 8"]["rate"] > 0
