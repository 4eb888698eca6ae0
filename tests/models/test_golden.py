"""The drafter against vectors of the authors' reference, through the script that developers run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"


def parity(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "parity.py"), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def copied(name: str, folder: Path) -> Path:
    shutil.copytree(GOLDEN / name, folder / name)
    shutil.copy(GOLDEN / f"{name}.expected.safetensors", folder)
    return folder / name / "model.safetensors"


def test_every_variant_replays_to_the_reference_hidden_states_logits_and_tokens():
    done = parity(GOLDEN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 1 + len(list(GOLDEN.glob("*.expected.safetensors")))


def test_a_single_changed_weight_fails_the_replay(tmp_path):
    file = copied("sliding_noncausal", tmp_path)
    weights = mx.load(str(file))
    weights["layers.1.mlp.up_proj.weight"][3, 5] += 0.5
    mx.save_safetensors(str(file), weights)
    done = parity(tmp_path)
    assert done.returncode == 1
    assert "FAILED" in done.stdout


def test_a_folder_without_vectors_is_an_error_not_a_success(tmp_path):
    done = parity(tmp_path)
    assert done.returncode == 1
    assert "golden vectors" in done.stderr
