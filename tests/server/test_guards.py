"""Who may call: the host's name, the page's origin, the key. And what a body may be."""

import json
from datetime import datetime

import pytest

from asking import CHAT, COMPLETIONS, MESSAGES, RESPONSES, USER, Client
from dflash2_mlx.errors import UsageError
from dflash2_mlx.server.settings import ServeSettings
from live import connect, read_all, running
from scripted import ScriptedSession, state

KEY = "s3cret"
POSTS = (CHAT, COMPLETIONS, MESSAGES, f"{MESSAGES}/count_tokens", RESPONSES)
EVIL = {"Origin": "https://evil.example"}


@pytest.fixture
def serve(make_state, wrapper):
    def serve(**settings) -> Client:
        return Client(make_state(ScriptedSession(wrapper, text="</think>\n\nHi."), ServeSettings(**settings)))

    return serve


def ask(client: Client, **headers: str):
    return client.post(CHAT, {"messages": USER}, headers=headers)


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "127.8.9.1:1", "[::1]:8000", "LOCALHOST"])
def test_loopback_names_are_known(serve, host):
    assert ask(serve(), Host=host).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "", "10.0.0.1", "[::2]"]
)
def test_other_names_are_refused_so_that_dns_cannot_be_rebound(serve, host):
    reply = ask(serve(), Host=host)
    assert reply.status_code == 403 and reply.json()["error"]["code"] == "host_not_allowed"


def test_a_name_can_be_allowed(serve):
    client = serve(allowed_hosts=("host.docker.internal",))
    assert ask(client, Host="host.docker.internal:8000").status_code == 200
    assert ask(client, Host="evil.example").status_code == 403


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "file://", "http://[x"])
def test_a_page_of_another_origin_cannot_post(serve, path, origin):
    client = serve()
    reply = client.request("POST", path, content=json.dumps({"messages": USER}), headers={"Origin": origin})
    assert reply.status_code == 403 and "access-control-allow-origin" not in reply.headers
    assert client.state.worker.opened.session.requests == []


def test_its_own_page_may_post(serve):
    assert ask(serve(), Origin="http://127.0.0.1:8000").status_code == 200


def test_an_allowed_origin_gets_cors_headers_and_preflight(serve):
    client = serve(cors_origins=("https://app.example",), api_key=KEY)
    allowed = {"Origin": "https://app.example"}
    asked = {**allowed, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = client.request("OPTIONS", CHAT, headers=asked)
    assert preflight.status_code == 200 and preflight.headers["access-control-allow-headers"] == "authorization"
    reply = ask(client, Authorization=f"Bearer {KEY}", **allowed)
    assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == "https://app.example"
    assert ask(client, Authorization=f"Bearer {KEY}", **EVIL).status_code == 403
    refused = ask(client, **allowed)
    assert refused.status_code == 401 and "access-control-allow-origin" in refused.headers
    assert ask(serve(cors_origins=("*",)), **EVIL).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"Authorization": f"Bearer {KEY}"}, {"authorization": f"bearer  {KEY}"}, {"x-api-key": KEY}],
)
def test_the_key_opens_by_either_header(serve, headers):
    assert ask(serve(api_key=KEY), **headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"x-api-key": KEY + "x"},
        {"x-api-key": "ř".encode()},
    ],
)
def test_without_the_key_everything_but_the_page_and_the_health_is_closed(serve, headers):
    client = serve(api_key=KEY)
    for method, path in [("POST", path) for path in POSTS] + [("GET", "/v1/models"), ("GET", "/api/status")]:
        reply = client.request(method, path, headers=headers)
        assert reply.status_code == 401 and KEY not in reply.text, path
        assert ("error" in reply.json()) and (reply.json().get("type") == "error") == path.startswith(MESSAGES)
    assert [client.get(path, headers=headers).status_code for path in ("/", "/health", "/livez")] == [200] * 3


def test_an_address_that_others_reach_needs_a_key():
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.com", ""):
        with pytest.raises(UsageError, match="API key"):
            ServeSettings(host=host)
        ServeSettings(host=host, api_key=KEY)
    assert all(ServeSettings(host=host).on_loopback for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"))


@pytest.mark.parametrize(
    "settings", [{"port": 70000}, {"keep_alive": "x"}, {"images": "see"}, {"max_queue": 0}, {"max_context": 0}]
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(UsageError):
        ServeSettings(**settings)


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{'a': 1}",
        b"\xff\xfe",
        b'{"messages": "\xc3\x28"}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": "\\ud800"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b"[" * 100_000,
        b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_json_object_is_a_400(client, path, body):
    reply = client.request("POST", path, content=body)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error.get("code", "invalid_json") == "invalid_json" and "JSON" in error["message"]


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_beyond_the_cap_is_a_413(client, declared):
    async def pieces():
        for _ in range(33):
            yield b" " * 2**20

    content = b" " * (33 * 2**20) if declared else pieces()
    reply = client.request("POST", CHAT, content=content)
    assert reply.status_code == 413 and reply.json()["error"]["code"] == "request_too_large"


def test_a_chunked_body_works(client, session):
    session.text = "</think>\n\nHi."

    async def pieces():
        for character in json.dumps({"messages": USER}):
            yield character.encode()

    assert client.request("POST", CHAT, content=pieces()).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", CHAT, 405),
        ("DELETE", MESSAGES, 405),
        ("POST", "/v1/models", 405),
        ("PUT", "/health", 405),
        ("POST", "/v1/chat/completion", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/messages/batches", 404),
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/chat/completions/", 404),
        ("GET", "/../etc/passwd", 404),
    ],
)
def test_wrong_paths_and_methods_have_their_route_s_envelope(client, method, path, status):
    reply = client.request(method, path)
    assert reply.status_code == status, reply.text
    assert (reply.json().get("type") == "error") == path.startswith(MESSAGES)
    assert status == 404 or reply.headers["allow"]


@pytest.mark.parametrize("path", ["/", "/health", "/livez", "/api/status", "/v1/models", "/v1/models/scripted"])
def test_head_and_query_strings_work(client, path):
    assert client.request("HEAD", path).status_code == 200
    assert client.get(f"{path}?beta=true").status_code == 200


@pytest.mark.parametrize("prefix", ["", "/v1", "/v1/v1"])
def test_a_base_url_may_end_in_v1_or_not(client, session, prefix):
    session.text = "</think>\n\nHi."
    body = {"messages": USER, "max_tokens": 9, "input": "hi"}
    for path in ("/chat/completions", "/messages", "/messages/count_tokens"):
        assert client.post(prefix + path, {key: body[key] for key in ("messages", "max_tokens")}).status_code == 200
    response = client.post(f"{prefix}/responses", {"input": "hi"}).json()
    assert client.get(f"{prefix}/responses/{response['id']}").json() == response
    assert client.post(f"{prefix}/completions", {"prompt": "hi"}).status_code == 200
    assert client.get(f"{prefix}/models/scripted").json() == client.get(f"{prefix}/models").json()["data"][0]
    for path, anthropic in ((MESSAGES, True), (CHAT, False)):
        refused = client.post(prefix + path.removeprefix("/v1"), {}).json()
        assert (refused.get("type") == "error") == anthropic, "the route's own envelope"


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (CHAT, {"POST"}),
        ("/v1/models", {"GET", "HEAD"}),
        ("/", {"GET", "HEAD"}),
        ("/responses/x", {"GET", "HEAD", "DELETE"}),
    ],
)
def test_options_says_what_a_route_takes(client, path, methods):
    reply = client.request("OPTIONS", path)
    assert (reply.status_code, reply.content) == (204, b"")
    assert set(reply.headers["allow"].split(", ")) == methods and "access-control-allow-origin" not in reply.headers
    assert client.request("OPTIONS", "/nosuch").status_code == 404
    assert client.request("OPTIONS", path, headers=EVIL).status_code == 403


def test_a_path_that_is_not_there_is_told_where_things_are(client):
    message = client.get("/nosuch").json()["error"]["message"]
    assert "/nosuch" in message and "/v1/chat/completions" in message and "the page for people is at /" in message


def test_models_are_listed_for_both_families_of_clients(client):
    listed = client.get("/v1/models").json()
    (model,) = listed["data"]
    assert (listed["object"], listed["has_more"], listed["first_id"], listed["last_id"]) == (
        *("list", False, "scripted", "scripted"),
    )
    assert (model["object"], model["type"], model["display_name"]) == ("model", "model", "scripted")
    assert datetime.fromisoformat(model["created_at"]).timestamp() == model["created"]


def test_models_are_listed_by_name(client):
    (model,) = client.get("/v1/models").json()["data"]
    assert model["id"] == "scripted" and client.get("/v1/models/also-scripted").json()["id"] == "scripted"
    assert client.get("/v1/models/status").json()["models"][0]["effective_engine"] == "dflash2"


def test_a_model_s_name_may_have_slashes(wrapper):
    from dataclasses import replace

    model = state(ScriptedSession(wrapper))
    engine = model.worker.opened
    engine.model = replace(engine.model, names=("owner/name",))
    assert Client(model).get("/v1/models/owner/name").status_code == 200
    model.worker.stop()
    assert model.worker.join(5)


@pytest.mark.parametrize(
    ("version", "origin", "status"),
    [("1.0", b"", b"200"), ("1.1", b"", b"400"), ("1.0", b"Origin: https://evil.example\r\n", b"403")],
)
def test_a_program_that_speaks_http_1_0_needs_no_host(make_state, wrapper, version, origin, status):
    """Browsers always send a Host, so there is nothing to rebind; an Origin counts as ever."""
    body = json.dumps({"messages": USER}).encode()
    head = f"POST {CHAT} HTTP/{version}\r\nContent-Length: {len(body)}\r\n".encode()
    with running(make_state(ScriptedSession(wrapper, text="</think>\n\nHi."))) as url, connect(url) as connection:
        connection.sendall(head + origin + b"\r\n" + body)
        assert read_all(connection).split(b" ", 2)[1] == status
