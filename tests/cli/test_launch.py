"""`dflash2-mlx launch`: what it prints, what it runs, and what it says where there is nothing to launch on."""

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEY = 'it\'s a "key" $HOME'
NAMES = ("owner/a model", "other")


class Handler(BaseHTTPRequestHandler):
    """Lists its models as the server does."""

    def do_GET(self) -> None:
        key, path = self.server.key, self.path  # type: ignore[attr-defined]
        entries = [{"id": name, "context_length": 32768} for name in NAMES]
        found = {"/v1/models": {"data": entries}, "/v1/models/other": entries[1]}.get(path)
        if key and self.headers["Authorization"] != f"Bearer {key}":
            status, document = 401, {"error": {"message": "wrong"}}
        elif found:
            status, document = 200, found
        else:
            status, document = 404, {"error": {"message": f"there is no {path}. Use what is served."}}
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.key = None  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def url(server) -> str:
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(autouse=True)
def clients(monkeypatch, tmp_path) -> Path:
    """A folder of the PATH whose clients write down how they were called."""
    monkeypatch.delenv("DFLASH2_MLX_API_KEY", raising=False)
    folder = tmp_path / "clients"
    folder.mkdir()
    for name in ("claude", "codex", "opencode", "open-webui"):
        program = (
            f"import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open({str(tmp_path / name)!r}, 'w'))"
        )
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -c {shlex.quote(program)} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def called(clients: Path, name: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of the client's last run."""
    return tuple(json.loads((clients.parent / name).read_text(encoding="utf-8")))


def pasted(text: str) -> None:
    """What the shell makes of the printed command."""
    subprocess.run(["sh", "-c", text], check=True, timeout=30)


def test_claude_is_pointed_at_the_server_for_every_model_it_may_ask_for(cli, url, clients):
    outcome = cli("launch", "claude", "--base-url", url)
    assert outcome.code == 0 and outcome.err == ""
    pasted(outcome.out)
    arguments, environment = called(clients, "claude")
    assert arguments == [] and environment["ANTHROPIC_BASE_URL"] == url
    assert environment["ANTHROPIC_AUTH_TOKEN"] and environment["ANTHROPIC_API_KEY"] == ""
    named = [name for name in environment if name.startswith("ANTHROPIC_") and name.endswith("MODEL")]
    assert len(named) == 5 and {environment[name] for name in named} == {"owner/a model"}


def test_codex_gets_a_provider_that_speaks_responses(cli, url, clients):
    import tomllib

    pasted(cli("launch", "codex", "--base-url", f"{url}/v1/", "--model", "other").out)
    arguments, environment = called(clients, "codex")
    assert arguments[::2] == ["-c"] * (len(arguments) // 2)
    config = tomllib.loads("\n".join(arguments[1::2]))
    provider = config["model_providers"][config["model_provider"]]
    assert provider == {"name": "dflash2-mlx", "base_url": f"{url}/v1", "wire_api": "responses"}
    assert config["model"] == "other" and config["model_context_window"] == 32768
    assert "DFLASH2_MLX_API_KEY" not in environment


def test_opencode_gets_its_configuration_inline(cli, url, clients):
    pasted(cli("launch", "opencode", "--base-url", url).out)
    config = json.loads(called(clients, "opencode")[1]["OPENCODE_CONFIG_CONTENT"])
    provider, _, model = config["model"].partition("/")
    assert config["provider"][provider]["options"]["baseURL"] == f"{url}/v1"
    assert config["provider"][provider]["models"][model]["limit"] == {"context": 32768, "output": 8192}


def test_open_webui_is_told_that_its_settings_last_one_run(cli, url, clients):
    outcome = cli("launch", "openwebui", "--base-url", url)
    assert "admin page" in outcome.err
    pasted(outcome.out)
    arguments, environment = called(clients, "open-webui")
    assert arguments == ["serve"] and environment["OPENAI_API_BASE_URLS"] == f"{url}/v1"


@pytest.mark.parametrize("name", ["claude", "codex", "opencode", "openwebui"])
def test_a_key_of_any_characters_survives_the_shell(cli, server, url, clients, name):
    server.key = KEY
    pasted(cli("launch", name, "--base-url", url, "--api-key", KEY).out)
    environment = called(clients, "open-webui" if name == "openwebui" else name)[1]
    assert any(value == KEY or json.dumps(KEY)[1:-1] in value for value in environment.values())


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_a_base_url_may_end_in_v1_or_not(cli, url, clients, monkeypatch, ending):
    monkeypatch.setenv("DFLASH2_MLX_API_KEY", "k")
    pasted(cli("launch", "claude", "--base-url", url + ending).out)
    environment = called(clients, "claude")[1]
    assert environment["ANTHROPIC_BASE_URL"] == url and environment["ANTHROPIC_AUTH_TOKEN"] == "k"


def test_the_client_s_own_arguments_follow(cli, url, clients):
    pasted(cli("launch", "claude", "--base-url", url, "--", "-p", "two words").out)
    assert called(clients, "claude")[0] == ["-p", "two words"]


def test_exec_runs_the_client_in_place_of_the_command(url, clients):
    command = [sys.executable, "-m", "dflash2_mlx", "launch", "claude", "--exec", "--base-url", url, "--", "-p", "hi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": ROOT})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    arguments, environment = called(clients, "claude")
    assert arguments == ["-p", "hi"] and environment["ANTHROPIC_BASE_URL"] == url


def test_a_client_that_is_not_installed_is_named_with_what_installs_it(cli, url, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    printed = cli("launch", "codex", "--base-url", url)
    assert printed.code == 0 and "npm install -g @openai/codex" in printed.err and "wire_api" in printed.out
    refused = cli("launch", "codex", "--base-url", url, "--exec")
    assert refused.code == 1 and "npm install -g @openai/codex" in refused.err and refused.out == ""


def test_no_server_is_one_line_and_exit_one(cli):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        outcome = cli("launch", "claude", "--base-url", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert outcome.code == 1 and outcome.out == "" and outcome.err.count("\n") == 1
    assert "no server answers" in outcome.err and "dflash2-mlx serve" in outcome.err


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 500\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_whatever_answers_instead_of_a_server_is_one_line(cli, answer):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        talker = threading.Thread(target=talk)
        talker.start()
        outcome = cli("launch", "claude", "--base-url", f"http://127.0.0.1:{listening.getsockname()[1]}")
        talker.join()
    assert outcome.code == 1 and len(outcome.err.splitlines()) == 1, outcome.err
    assert "--base-url" in outcome.err and "report" not in outcome.err


def test_a_proxy_of_the_environment_is_left_aside(cli, url, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert cli("launch", "claude", "--base-url", url).code == 0


def test_refusals_of_the_server_are_told(cli, server, url):
    assert "there is no /v1/models/third" in cli("launch", "claude", "--base-url", url, "-m", "third").err
    server.key = "k"
    assert "--api-key" in cli("launch", "claude", "--base-url", url).err


@pytest.mark.parametrize(
    "arguments", [("vim",), ("claude", "--base-url", "localhost:8000"), ("claude", "--base-url", "")]
)
def test_what_cannot_be_is_a_matter_of_usage(cli, arguments):
    assert cli("launch", *arguments).code == 2
