"""`dflash2-mlx launch`: how other programs are pointed at a running server. Changes no file, loads nothing heavy."""

import json
import os
import shlex
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import cast
from urllib.parse import quote, urlsplit

from dflash2_mlx.cli import options
from dflash2_mlx.cli.out import Out
from dflash2_mlx.errors import LaunchError, UsageError
from dflash2_mlx.parsing import parse_json

_TIMEOUT_S = 5.0
_LONGEST = 2**24  # bytes of an answer to read
_NO_KEY = "none"  # clients insist on some key
_ANSWER_SHARE = 4  # one part in so many of the context is left to an answer before a client shortens its history


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers: where, what it serves, and the key, if it asks for one."""

    url: str
    model: str
    context: int | None
    key: str | None


@dataclass(frozen=True, slots=True)
class Launch:
    """A command and what its environment adds; `note`: what the user should know of it."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None


def launch(
    client: options.Client,
    arguments: options.ClientArguments = None,
    base_url: options.BaseUrl = "http://127.0.0.1:8000",
    api_key: options.ServerKey = None,
    model: options.ServerModel = None,
    run: options.RunClient = False,
) -> None:
    """Print the command that runs a client on the running server, or run it with --exec. No file is changed."""
    if client not in CLIENTS:
        raise UsageError(f"client is {client!r}. Give one of: {', '.join(CLIENTS)}.")
    kind = CLIENTS[client]
    running = find_server(base_url, api_key or os.environ.get(options.KEY_VARIABLE) or None, model)
    made = kind.launch(running)
    made = Launch((*made.command, *(arguments or ())), made.environment, made.note)
    out, program = Out(), shutil.which(made.command[0])
    if made.note:
        out.note(f"dflash2-mlx: {made.note}")
    if run:
        if program is None:
            raise LaunchError(f"{made.command[0]} is not installed: it is not on the PATH. Type: {kind.install}")
        os.execve(program, made.command, {**os.environ, **made.environment})
    if program is None:
        out.note(f"dflash2-mlx: {made.command[0]} is not on the PATH here. To install it: {kind.install}")
    out.document(shown(made))


def shown(made: Launch) -> str:
    """The launch as a command for any POSIX shell; it holds for that one run."""
    parts = [f"{name}={shlex.quote(value)}" for name, value in made.environment.items()]
    command = shlex.join(made.command)
    return " \\\n    ".join(["env " + parts[0], *parts[1:], command]) if parts else command


def find_server(base_url: str, key: str | None, model: str | None) -> Running:
    """What answers at `base_url`. Raises: UsageError for no URL, LaunchError where nothing usable answers."""
    url = base_url.rstrip("/").removesuffix("/v1")
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc:
        raise UsageError(f"base-url is {base_url!r}. Give something like http://127.0.0.1:8000.")
    path = f"/v1/models/{quote(model)}" if model else "/v1/models"
    entry = _ask(url, path, key)
    if not model:
        listed = entry.get("data")
        entry = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    name, context = model or entry.get("id"), entry.get("context_length")
    if not isinstance(name, str):
        raise LaunchError(f"{url} answers, but lists no model. Is it a dflash2-mlx server? Give another --base-url.")
    return Running(url, name, context if isinstance(context, int) else None, key)


def _ask(url: str, path: str, key: str | None) -> dict[str, object]:
    """The document at `path`. Proxies are left aside: the server is near. Raises: LaunchError."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url + path, headers=headers), timeout=_TIMEOUT_S) as reply:
            document = parse_json(reply.read(_LONGEST))
    except urllib.error.HTTPError as error:
        with error:
            raise LaunchError(_refusal(url, error)) from None
    except (OSError, HTTPException, ValueError) as error:
        why = " ".join(str(getattr(error, "reason", None) or error).split())
        raise LaunchError(
            f"no server answers at {url} ({why}). Start one with `dflash2-mlx serve`, or name it with --base-url."
        ) from None
    return cast(dict[str, object], document) if isinstance(document, dict) else {}


def _refusal(url: str, error: urllib.error.HTTPError) -> str:
    if error.code == 401:
        return f"{url} asks for an API key. Give it with --api-key or {options.KEY_VARIABLE}."
    try:
        message = parse_json(error.read(_LONGEST))["error"]["message"]
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        message = f"it answered {error.code}. Is it a dflash2-mlx server? Give another --base-url."
    return f"{url}: {message}"


def _claude(server: Running) -> Launch:
    """Claude Code. Source: its documentation of environment variables."""
    models = ("MODEL", "SMALL_FAST_MODEL", *(f"DEFAULT_{kind}_MODEL" for kind in ("OPUS", "SONNET", "HAIKU")))
    environment = {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_AUTH_TOKEN": server.key or _NO_KEY,
        "ANTHROPIC_API_KEY": "",  # one that is set for the real API would be asked about
        **{f"ANTHROPIC_{name}": server.model for name in models},
        "CLAUDE_CODE_SUBAGENT_MODEL": server.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if server.context:
        names = ("CLAUDE_CODE_MAX_CONTEXT_TOKENS", "CLAUDE_CODE_AUTO_COMPACT_WINDOW")
        environment.update(dict.fromkeys(names, str(server.context)))
    return Launch(("claude",), environment)


def _codex(server: Running) -> Launch:
    """Codex. Source: its configuration reference; values are TOML, whose plain strings are JSON's."""
    provider = {"name": "dflash2-mlx", "base_url": f"{server.url}/v1", "wire_api": "responses"}
    provider.update({"env_key": options.KEY_VARIABLE} if server.key else {})
    values: dict[str, object] = {"model": server.model, "model_provider": "dflash2-mlx"}
    values.update({f"model_providers.dflash2-mlx.{name}": value for name, value in provider.items()})
    values.update({"model_context_window": server.context} if server.context else {})
    settings = [word for name, value in values.items() for word in ("-c", f"{name}={json.dumps(value)}")]
    return Launch(("codex", *settings), {options.KEY_VARIABLE: server.key} if server.key else {})


def _opencode(server: Running) -> Launch:
    """OpenCode. Source: its configuration schema."""
    model: dict[str, object] = {"name": server.model}
    if server.context:
        model["limit"] = {"context": server.context, "output": server.context // _ANSWER_SHARE}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "dflash2-mlx",
        "options": {"baseURL": f"{server.url}/v1", "apiKey": server.key or _NO_KEY},
        "models": {server.model: model},
    }
    name = f"dflash2-mlx/{server.model}"
    config = {"provider": {"dflash2-mlx": provider}, "model": name, "small_model": name}
    return Launch(("opencode",), {"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _openwebui(server: Running) -> Launch:
    """Open WebUI. Source: its environment reference."""
    url, key = f"{server.url}/v1", server.key or _NO_KEY
    environment = {
        "OPENAI_API_BASE_URL": url,
        "OPENAI_API_BASE_URLS": url,
        "OPENAI_API_KEY": key,
        "OPENAI_API_KEYS": key,
        "DEFAULT_MODELS": server.model,
        "ENABLE_OLLAMA_API": "False",
        "ENABLE_PERSISTENT_CONFIG": "False",
    }
    note = "so started, Open WebUI takes its settings from here: what you change on its admin page ends with it"
    return Launch(("open-webui", "serve"), environment, note)


@dataclass(frozen=True, slots=True)
class _Kind:
    launch: Callable[[Running], Launch]
    install: str


CLIENTS: Mapping[str, _Kind] = {
    "claude": _Kind(_claude, "npm install -g @anthropic-ai/claude-code"),
    "codex": _Kind(_codex, "npm install -g @openai/codex"),
    "opencode": _Kind(_opencode, "npm install -g opencode-ai"),
    "openwebui": _Kind(_openwebui, "pip install open-webui"),
}
