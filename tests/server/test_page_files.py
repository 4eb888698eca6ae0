"""What `/` and `/page/` send: which files, with which headers, to whom. No browser."""

import re
from pathlib import Path

import pytest

from asking import Client
from dflash2_mlx.server import page
from dflash2_mlx.server.settings import ServeSettings

FILES = sorted((Path(page.__file__).parent / "page").iterdir())


def test_the_page_lists_every_route(client):
    text = client.get("/").text
    paths = {route.path for route in client.app.routes}
    named = {path for path in paths if f"/v1{path}" not in paths and not path.startswith("/v1/v1/")}  # one name each
    for path in named - {"/"}:
        assert "{" in path or f" {path}<" in text, path


def test_the_page_asks_nothing_of_other_hosts_and_runs_its_own_files_only(client):
    reply = client.get("/")
    links = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", reply.text)
    assert [link for link in links if not link.startswith(("data:", "/page/"))] == []
    assert not re.search(r"<script>|<style|\sstyle=|\son\w+=", reply.text)
    policy = reply.headers["content-security-policy"]
    assert "unsafe" not in policy and {"default-src 'none'", "script-src 'self'"} <= set(policy.split("; "))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_of_the_page_is_served_with_its_type_open_and_kept(make_state, session, path):
    client = Client(make_state(session, ServeSettings(api_key="a key")))
    reply = client.get(f"/page/{path.name}")
    kind = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}[path.suffix]
    assert reply.status_code == 200 and reply.headers["content-type"] == f"{kind}; charset=utf-8"
    assert reply.text == path.read_text(encoding="utf-8") and reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-cache" and "content-security-policy" in reply.headers
    again = client.get(f"/page/{path.name}", headers={"If-None-Match": reply.headers["etag"]})
    assert again.status_code == 304 and "content-security-policy" in again.headers


@pytest.mark.parametrize("name", ["nothing.js", "../page.py", "%2e%2e/page.py", "..%2fpage.py", ""])
def test_nothing_but_the_files_of_the_page_is_served(client, name):
    reply = client.get(f"/page/{name}")
    assert reply.status_code == 404 and "error" in reply.json()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_the_page_are_short_and_scripts_say_what_they_know(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 400
    if path.suffix == ".js":
        assert lines[0].startswith("// ") and max(map(len, lines)) <= 120
