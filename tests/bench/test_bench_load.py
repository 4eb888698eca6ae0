"""Clients at once against a small server that speaks OpenAI's interface, well and badly."""

import json
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dflash2_mlx.bench import chat_client
from dflash2_mlx.bench.chat_client import Endpoint, Reply, ask, client_of
from dflash2_mlx.bench.load import LoadPlan, run_level, summed_up


class ChatServer(ThreadingHTTPServer):
    """Streams `pieces` of two tokens each; `fault` says what goes wrong."""

    daemon_threads = True

    def __init__(self, fault=None, pieces=3):
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault, self.pieces = fault, pieces
        self.bodies, self.keys, self.paths, self.now, self.most = [], [], [], 0, 0
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


END = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}\n\n'
ODD_STREAMS = {
    "html": b"<html>\n<body>sign in</body></html>",
    "whole": b'{"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}',
    "empty": b"",
    "deep": b"data: " + b"[" * 200_000 + b"\n\n",
    "latin": b'data: {"choices": \xe9}\n\n',
    "escape": b'data: {"error": {"message": "bad \\u001b[31m \\n key"}}\n\n',
    "no error": b'data: {"error": null, "choices": []}\n\n' + END,
    "huge usage": END + b'data: {"choices": [], "usage": {"completion_tokens": 1' + b"0" * 400 + b"}}\n\n",
    "usage true": END + b'data: {"choices": [], "usage": {"completion_tokens": true}}\n\n',
    "usage text": END + b'data: {"choices": 3, "usage": "none"}\n\n',
}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.paths.append(self.path)
        if self.server.fault == "key":
            self._json(401, {"error": {"message": "no\x1b[31m key"}})
            return
        if self.server.fault == "moved":
            self.send_response(308)
            self.send_header("Location", "https://elsewhere/v1/models")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.server.fault == "nested":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[" * 200_000)
            return
        self._json(200, {"data": [{"id": "some-model"}]} if self.server.fault != "no models" else {"data": []})

    def do_POST(self):
        server = self.server
        server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        server.paths.append(self.path)
        server.keys.append(self.headers.get("Authorization"))
        with server.lock:
            server.now += 1
            server.most = max(server.most, server.now)
        try:
            if server.fault == "slow later" and len(server.bodies) > 2:
                return time.sleep(60)
            if server.fault == "busy" and len(server.bodies) % 2 == 0:
                return self._json(503, {"error": {"message": "queue_full"}})
            self._stream()
        finally:
            with server.lock:
                server.now -= 1

    def _json(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self):
        odd = ODD_STREAMS.get(self.server.fault)
        if odd is not None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(odd)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b": keep-alive\n\n")
        self._event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for number in range(self.server.pieces):
            time.sleep(0.01)
            if self.server.fault == "dies" and number == 1:
                return
            if self.server.fault == "error" and number == 1:
                self._event({"error": {"message": "out of memory"}, "choices": []})
                return
            key = "reasoning_content" if number == 0 else "content"
            self._event({"choices": [{"delta": {key: "word "}}]})
        self._event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        self._event({"choices": [], "usage": {"completion_tokens": 2 * self.server.pieces}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, body):
        self.wfile.write(f"data: {json.dumps(body)}\n\n".encode())
        self.wfile.flush()


@pytest.fixture
def serve():
    servers = []

    def start(fault=None, pieces=3):
        server = ChatServer(fault, pieces)
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def one(server, **settings):
    with client_of(Endpoint(server.url, "some-model", **settings)) as client:
        return ask(client, {"stream": True})


def test_a_reply_counts_the_servers_tokens_and_the_gaps_between_pieces_of_text(serve):
    reply = one(serve())
    assert reply.error is None and reply.tokens == 6 and len(reply.gaps_s) == 2
    assert 0.009 < reply.first_s < reply.total_s and all(gap > 0.005 for gap in reply.gaps_s)


@pytest.mark.parametrize(
    ("fault", "words"),
    [("busy", "HTTP 503"), ("dies", "without a finish_reason"), ("error", "in the stream: out of memory")],
)
def test_what_goes_wrong_is_in_the_reply_and_not_raised(serve, fault, words):
    server = serve(fault)
    replies = [one(server), one(server)]
    assert words in (replies[-1].error or "")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("html", "no event came: the answer is text/html"),
        ("whole", "no event came"),
        ("empty", "no event came"),
        ("deep", "nested too deep"),
        ("latin", "UnicodeDecodeError"),
        ("escape", "in the stream: bad [31m key"),
    ],
)
def test_an_answer_that_is_no_stream_is_an_error_of_the_reply(serve, fault, words):
    assert words in one(serve(fault)).error


def test_a_line_without_an_end_is_not_read_for_ever(serve, monkeypatch):
    monkeypatch.setattr(chat_client, "_LONGEST", 10_000)
    assert "longer than 10000 bytes" in one(serve("deep")).error


@pytest.mark.parametrize("fault", ["no error", "huge usage", "usage true", "usage text"])
def test_odd_numbers_of_a_server_are_not_taken_over(serve, fault):
    reply = one(serve(fault))
    assert reply.error is None and reply.tokens == 1


@pytest.mark.parametrize(
    ("fault", "words"),
    [("key", "HTTP 401"), ("moved", "HTTP 308: https://elsewhere/v1/models"), ("nested", "nested too deep")],
)
def test_a_server_that_does_not_list_its_models_is_one_line_with_the_reason(serve, cli, fault, words):
    outcome = cli("load", "--base-url", serve(fault).url)
    assert outcome.code == 2 and words in outcome.err and len(outcome.err.splitlines()) == 1
    assert "\x1b" not in outcome.err


def test_a_first_request_that_fails_ends_the_test_at_once(serve, cli):
    server = serve("html")
    outcome = cli("load", "--base-url", server.url, "--clients", "4")
    assert outcome.code == 1 and "did not answer a first request: no event came" in outcome.err, outcome.err
    assert len(server.bodies) == 1 and outcome.out == ""


def test_ctrl_c_ends_a_load_test_at_once_with_the_levels_done(serve):
    """In a process of its own: clients that go on would keep it from ending."""
    server = serve("slow later")
    command = [
        sys.executable,
        "-m",
        "dflash2_mlx",
        "bench",
        "load",
        "--base-url",
        server.url,
        "-c",
        "1,2",
        "--requests",
        "1",
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heeds_ctrl_c)
    while len(server.bodies) < 4 and child.poll() is None:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert child.returncode == 130 and b"Traceback" not in err, err
    document = json.loads(out.splitlines()[-1])
    assert [level["clients"] for level in document["levels"]] == [1] and document["complete"] is False


def heeds_ctrl_c():
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_server_that_is_not_there_is_an_error_of_the_reply():
    with client_of(Endpoint("http://127.0.0.1:9/v1", "m")) as client:
        assert "refused" in ask(client, {}).error


def test_a_level_runs_its_clients_at_once_and_sends_what_was_asked_for(serve):
    server = serve(pieces=8)
    plan = LoadPlan(Endpoint(server.url, "some-model", "key"), ["one", "two"], 17, 2, 0.5)
    level = run_level(plan, 3)
    assert (level.clients, level.requests, level.failed, level.tokens) == (3, 6, 0, 96)
    assert server.most > 1 and set(server.keys) == {"Bearer key"}
    asked = [body["messages"][0]["content"] for body in server.bodies]
    assert {words.split("] ")[1] for words in asked} == {"one", "two"} and len(set(asked)) == 6, "no prompt twice"
    assert all(body["max_tokens"] == 17 and body["stream_options"] == {"include_usage": True} for body in server.bodies)


def test_prompts_are_repeated_only_where_that_is_asked_for(serve):
    server = serve()
    run_level(LoadPlan(Endpoint(server.url, "some-model"), ["one"], 17, 2, 0.5, repeat_prompts=True), 2)
    assert [body["messages"][0]["content"] for body in server.bodies] == ["one"] * 4


@pytest.mark.parametrize("form", ["/v1", "/v1/", "", "/"])
def test_the_server_is_named_with_or_without_v1_and_the_key_is_the_servers_own(serve, cli, monkeypatch, form):
    server = serve()
    monkeypatch.setenv("DFLASH2_MLX_API_KEY", "secret")
    outcome = cli("load", "--base-url", server.url.removesuffix("/v1") + form, "--clients", "1", "--requests", 1)
    assert outcome.code == 0, outcome.err
    assert set(server.paths) == {"/v1/models", "/v1/chat/completions"} and set(server.keys) == {"Bearer secret"}


def test_the_share_of_the_prompt_that_was_cached_is_told_where_the_server_says_it():
    def reply(cached):
        return Reply(0.2, 1.2, (0.5,), 11, None, 20, cached)

    assert summed_up(1, [reply(5), reply(15)], 2.0).cached == 0.5 and summed_up(1, [reply(None)], 2.0).cached is None


def test_failed_requests_count_as_errors_and_nowhere_else():
    good = Reply(0.2, 1.2, (0.5, 0.5), 11, None)
    level = summed_up(2, [good, good, Reply(0.1, 0.1, (), 3, "HTTP 503: x")], 2.0)
    assert (level.requests, level.failed, level.tokens, level.throughput) == (3, 1, 22, 11.0)
    assert level.first_s.p50 == 0.2 and level.token_s.p50 == pytest.approx(0.1) and level.errors == {"HTTP 503: x": 1}


def test_the_command_takes_the_servers_model_and_writes_its_report(serve, cli, tmp_path):
    server = serve()
    outcome = cli("load", "--base-url", server.url, "--clients", "1,2", "--requests", 1, "--report", tmp_path / "r")
    assert outcome.code == 0, outcome.err
    levels = outcome.document["levels"]
    assert [level["clients"] for level in levels] == [1, 2] and outcome.document["model"] == "some-model"
    assert "All 3 requests were answered in full" in outcome.err and (tmp_path / "r" / "report.html").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/v1", "does not list its models"),
        ("localhost:8000", "is no URL"),
        ("http://127.0.0.1:99999/v1", "is no URL"),
        ("http://[::1/v1", "is no URL"),
        ("http://127.0.0.1:9/v1?key=1", "is no URL"),
        ("", "is no URL"),
    ],
)
def test_a_server_that_cannot_be_asked_is_one_line(cli, url, words):
    outcome = cli("load", "--base-url", url)
    assert outcome.code == 2 and words in outcome.err and len(outcome.err.splitlines()) == 1


def test_a_server_without_models_needs_a_name(serve, cli):
    outcome = cli("load", "--base-url", serve("no models").url)
    assert outcome.code == 2 and "Name one with --model" in outcome.err
