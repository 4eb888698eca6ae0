"""A Hub on 127.0.0.1 that serves what it is given, fails as it is told, and remembers every request."""

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Repo:
    """The files of one commit, the names that point to it, and what the transfer of a file does instead of working."""

    files: dict[str, bytes]
    commit: str
    refs: list[str] = field(default_factory=lambda: ["main"])
    sent: dict[str, bytes] = field(default_factory=dict)  # other bytes than the metadata promises
    cut_after: dict[str, tuple[int, int]] = field(default_factory=dict)  # bytes a transfer, transfers so cut
    pause_s: float = 0.0  # between pieces


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    range: str | None
    token: str | None


class StubHub:
    """Start with `with StubHub() as hub`; `hub.url` is the endpoint."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.seen: list[Seen] = []
        self.faults: list[tuple[str, int, dict[str, str], list[int]]] = []
        hub = self

        class Handler(_Handler):
            stub = hub

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "StubHub":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, name: str, files: dict[str, bytes], **settings: object) -> Repo:
        """Serve these files as the repository `name`."""
        content = repr(sorted(files.items())).encode()
        self.repos[name] = Repo(files, hashlib.sha1(content).hexdigest(), **settings)
        return self.repos[name]

    def add_folder(self, name: str, folder: Path) -> Repo:
        """Serve the files of a folder."""
        return self.add(name, {path.name: path.read_bytes() for path in folder.iterdir()})

    def fail(self, part: str, status: int, times: int = 1000, **headers: str) -> None:
        """Answer `status` to requests whose path holds `part`, so many times."""
        self.faults.append((part, status, {name.replace("_", "-"): value for name, value in headers.items()}, [times]))

    def fetches(self, part: str) -> list[Seen]:
        """The GET requests for files whose path holds `part`."""
        return [seen for seen in self.seen if seen.method == "GET" and "/resolve/" in seen.path and part in seen.path]


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        pass  # a client that gave up


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: StubHub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(self._head)

    def do_GET(self) -> None:
        self._answer(self._get)

    def _answer(self, send: Callable[[Repo, str], None]) -> None:
        path = unquote(urlsplit(self.path).path)
        self.stub.seen.append(Seen(self.command, path, self.headers.get("Range"), self.headers.get("Authorization")))
        for part, status, headers, times in self.stub.faults:
            if part in path and times[0] > 0:
                times[0] -= 1
                return self._status(status, headers)
        path = path.removeprefix("/datasets").replace("/api/datasets/", "/api/models/", 1)  # a kind of repository too
        api = path.startswith("/api/models/")
        owner, name, *rest = path.removeprefix("/api/models/").strip("/").split("/")
        repo = self.stub.repos.get(f"{owner}/{name}")
        if repo is None:
            return self._status(404, {"X-Error-Code": "RepoNotFound"})
        if len(rest) > 1 and rest[1] not in (repo.commit, *repo.refs):
            return self._status(404, {"X-Error-Code": "RevisionNotFound"})
        if api:
            return self._api(repo, f"{owner}/{name}", tree=rest[:1] == ["tree"])
        return send(repo, "/".join(rest[2:]))

    def _status(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _api(self, repo: Repo, name: str, *, tree: bool) -> None:
        entries = [_entry(path, content) for path, content in repo.files.items()]
        body: object = {"id": name, "sha": repo.commit, "siblings": [sibling for sibling, _ in entries]}
        content = json.dumps([leaf for _, leaf in entries] if tree else body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _file_headers(self, repo: Repo, path: str, length: int) -> None:
        sibling, _ = _entry(path, repo.files[path])
        lfs = sibling.get("lfs")
        self.send_header("X-Repo-Commit", repo.commit)
        self.send_header("ETag", f'"{lfs["sha256"] if lfs else sibling["blobId"]}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(length))

    def _head(self, repo: Repo, path: str) -> None:
        self.send_response(200)
        self._file_headers(repo, path, len(repo.files[path]))
        self.end_headers()

    def _get(self, repo: Repo, path: str) -> None:
        content = repo.sent.get(path, repo.files[path])
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self._file_headers(repo, path, len(content) - start)
        self.end_headers()
        length, times = repo.cut_after.get(path, (0, 0))
        if times:
            repo.cut_after[path] = (length, times - 1)
            self.wfile.write(content[start : start + length])
            self.close_connection = True
            return
        step = max(1, len(content) // 8) if repo.pause_s else len(content) or 1
        for at in range(start, len(content), step):
            threading.Event().wait(repo.pause_s)
            self.wfile.write(content[at : at + step])


def _entry(path: str, content: bytes) -> tuple[dict[str, object], dict[str, object]]:
    """A file as the repository's page and as its tree describe it; weights are kept in LFS."""
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    sibling: dict[str, object] = {"rfilename": path, "size": len(content), "blobId": blob}
    leaf: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": blob}
    if path.endswith(".safetensors"):
        digest = hashlib.sha256(content).hexdigest()
        sibling["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 130}
        leaf["lfs"] = {"size": len(content), "oid": digest, "pointerSize": 130}
    return sibling, leaf
