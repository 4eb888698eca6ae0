"""What the openai package for Node makes of us. Skipped where there is no npm, or no registry to fetch it from."""

import json
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from dflash2_mlx.server.settings import ServeSettings
from live import serving_demo, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="node and npm are not installed"),
]
PACKAGE = "openai@6"


def test_chat_streams_tools_responses_errors_and_an_abort(tmp_path):
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", tmp_path, PACKAGE]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if fetched.returncode:
        pytest.skip(f"npm could not fetch {PACKAGE}: {fetched.stderr.strip().splitlines()[-1:]}")
    script = shutil.copy(Path(__file__).with_name("node_sdk.mjs"), tmp_path)
    with serving_demo(ServeSettings(cache_bytes=10**9)) as url:
        done = subprocess.run(["node", script, f"{url}/v1", "demo"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        wait_for(lambda: httpx.get(f"{url}/api/status").json()["active_requests"] == 0)
    saw = json.loads(done.stdout)
    assert saw["whole"] == saw["streamed"] == saw["response"] != "" and saw["usage"][0] == saw["usage"][1]
    assert saw["call"]["name"] == "get_weather" and json.loads(saw["call"]["arguments"]) == {"city": "Paris"}
    assert saw["events"] == ["response.created", "response.completed"] and saw["models"] == ["demo"]
    assert saw["refused"] == ["NotFoundError", 404, "model_not_found"] and saw["pieces"] == 3
