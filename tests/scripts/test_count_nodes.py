"""What a round launches on a GPU, counted on graphs that are never evaluated, stays within its bounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "count_nodes.py"


@pytest.mark.slow
def test_a_draft_of_the_27b_pair_and_what_sampling_adds_stay_small():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, cwd=SCRIPT.parent.parent)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])["Qwen3.8-27B 4-bit, DFlash 2 drafter"]
    assert max(counts["draft_short"], counts["draft_full_window"]) <= 200
    assert counts["sampled_extra"] <= 60
    assert counts["verify_5"] == counts["verify_1"], "more rows, not more launches"
