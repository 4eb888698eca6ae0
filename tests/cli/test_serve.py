"""`dflash2-mlx serve`: what it refuses before it loads, what it says, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from dflash2_mlx.cli import serve
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.serve import read_block_size, read_effort_map, read_gigabytes
from dflash2_mlx.errors import UsageError

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "no API key is set"),
        (["--port", "70000"], "port is 70000"),
        (["--block-size", "wide"], "Give auto"),
        (["--block-size", "0"], "Give auto"),
        (["--sse-keepalive", "loud"], "comment, chunk, off"),
        (["--effort-map", "high"], "WORD=LEVEL"),
        (["--max-queue", "0"], "at least 1"),
        (["--images", "look"], "refuse or placeholder"),
        (["--max-context", "0"], "at least 1"),
        (["--prefix-cache-gb", "-1"], "prefix-cache-gb"),
        (["--log-level", "shout"], "debug, info"),
        (["--no-draft", "--require-draft"], "excludes"),
        (["--api-key", " "], "API key"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(cli, words, said):
    outcome = cli("serve", "--model", "demo", *words)
    assert outcome.code == 2 and said in outcome.err and outcome.out == "", outcome.err


def test_values_are_read_as_people_write_them():
    assert [read_block_size(text) for text in ("auto", "1", "5")] == [None, 1, 5]
    assert read_effort_map(["high=medium,max=xhigh", "a=low"]) == {"high": "medium", "max": "xhigh", "a": "low"}
    assert read_gigabytes(0.5) == 500_000_000
    with pytest.raises(UsageError):
        read_gigabytes(float("nan"))


@pytest.mark.parametrize(("asked", "opened"), [(True, ["http://here"]), (False, [])])
def test_the_page_is_opened_where_that_is_asked(monkeypatch, capsys, asked, opened):
    calls = []
    monkeypatch.setattr("webbrowser.open", lambda url: bool(calls.append(url)))
    monkeypatch.setattr(serve, "banner", lambda listening, out: None)
    serve._begin(SimpleNamespace(url="http://here"), Out(), asked)
    assert calls == opened and ("no browser" in capsys.readouterr().err) == asked


def test_a_taken_port_fails_at_once_and_says_what_to_type(cli):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        outcome = cli("serve", "--model", "demo", "--port", port)
    assert outcome.code == 1 and f"serve --port {port + 1}" in outcome.err and "Traceback" not in outcome.err


def test_a_model_that_is_not_there_ends_it_with_one_line(cli, tmp_path):
    outcome = cli("serve", "--model", tmp_path / "nowhere", "--port", 0)
    assert outcome.code == 1 and "nowhere" in outcome.err.splitlines()[-1] and "Traceback" not in outcome.err


def test_asking_for_help_loads_no_server():
    heavy = "{'mlx', 'mlx_lm', 'transformers', 'starlette', 'uvicorn', 'huggingface_hub'}"
    code = (
        "import runpy, sys\nsys.argv = ['dflash2-mlx', 'serve', '--help']\n"
        "try: runpy.run_module('dflash2_mlx', run_name='__main__')\nexcept SystemExit: pass\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]" and "--sse-keepalive" in done.stdout, done.stderr


@contextmanager
def serving(log: Path, *words: str, **environment: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """The command as a process of its own, and its URL once the banner is out."""
    command = [sys.executable, "-m", "dflash2_mlx", "serve", "--model", "demo", "--port", "0", *words]
    with log.open("w") as out:
        process = subprocess.Popen(command, stderr=out, stdout=out, env={**ENVIRONMENT, **environment})
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"^try +curl (http://[\d.:]+)/v1", log.read_text(), re.M)):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield process, found.group(1)
    finally:
        process.kill()
        process.wait()


CHAT = {"messages": [{"role": "user", "content": "Who are you?"}]}


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_streams_with_a_reason_and_the_process_within_five_seconds(tmp_path, number, code):
    log = tmp_path / "log"
    body = {**CHAT, "stream": True, "logit_bias": {"2": -1000, "0": -1000}}  # it never ends by itself
    with serving(log) as (process, url), httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
        lines = reply.iter_lines()
        while '"delta":{"' not in next(lines):
            pass
        began = time.monotonic()
        process.send_signal(number)
        rest = "\n".join(lines)
        assert process.wait(5) == code and time.monotonic() - began < 5
    assert "shutting down" in rest and rest.rstrip().endswith("[DONE]")
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_the_banner_s_curl_line_works_and_neither_key_nor_prompt_is_logged(tmp_path):
    log = tmp_path / "log"
    words = ("--no-draft", "--served-model-name", "mine", "--log-level", "debug")
    with serving(log, *words, DFLASH2_MLX_API_KEY="s3cret") as (_, url):
        banner = log.read_text()
        assert "drafting     off: switched off (--no-draft)" in banner and "key          needed" in banner
        line = next(line for line in banner.splitlines() if line.startswith("try")).removeprefix("try").strip()
        environment = {**ENVIRONMENT, "DFLASH2_MLX_API_KEY": "s3cret"}
        done = subprocess.run(["sh", "-c", f"{line} -s"], capture_output=True, text=True, env=environment)
        assert '"finish_reason":"stop"' in done.stdout and '"model":"mine"' in done.stdout, done.stdout
        assert '"mode":"plain"' in done.stdout and "--no-draft" in done.stdout
        assert httpx.get(f"{url}/v1/models").status_code == 401
    said = log.read_text()
    assert "s3cret" not in said and "Who are you?" not in said.replace(banner, "")
    assert "POST /v1/chat/completions: 200" in said


@pytest.mark.slow
def test_a_required_drafter_and_a_block_size_reach_the_engine(tmp_path):
    with serving(tmp_path / "log", "--require-draft", "--block-size", "3", "--max-context", "64") as (_, url):
        reply = httpx.post(f"{url}/v1/chat/completions", json=CHAT, timeout=30).json()
        assert reply["dflash"]["block_size"] == 3 and reply["usage"]["total_tokens"] <= 64
        assert httpx.get(f"{url}/api/status").json()["context_length"] == 64
