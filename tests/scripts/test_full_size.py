"""The real pairs' graphs, built symbolically: byte counts against the published ones, and nothing evaluated."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "full_size.py"


@pytest.mark.slow
def test_the_full_size_pairs_have_the_published_figures_and_evaluate_nothing():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, cwd=SCRIPT.parent.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["active_bytes"] < 64 * 2**20
    assert report["figures"]["Qwen3.8-27B 4"]["target bytes, 4-bit"] == 15_132_802_048
    assert "[5, 248320] bfloat16" in done.stdout and "[6] float32" in done.stdout
