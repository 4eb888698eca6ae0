"""Public data sets, fetched from a stub Hub, and what a missing or changed one becomes."""

import importlib.util
import io
import json

import pytest
from huggingface_hub import close_session

from dflash2_mlx.bench.datasets import DATASETS, fetch_workload
from dflash2_mlx.errors import LoadError, UsageError


def lines(*rows):
    return "\n".join(json.dumps(row) for row in rows).encode()


def serve(hub, name, path, content):
    return hub.add(DATASETS[name].repository, {"README.md": b"x", path: content})


def test_the_first_rows_become_conversations(hub):
    serve(hub, "math500", "test.jsonl", lines({"problem": "1 + 1?"}, {"problem": "2 + 2?"}, {"problem": "3 + 3?"}))
    found = fetch_workload("math500", 2)
    assert found.conversations == (("1 + 1?",), ("2 + 2?",)) and found.name == "math500"


def test_two_turn_questions_keep_their_turns(hub):
    serve(hub, "mt-bench", "raw/question.jsonl", lines({"question_id": 81, "turns": ["Write.", "Rewrite."]}))
    assert fetch_workload("mt-bench", 5).conversations == (("Write.", "Rewrite."),)


def test_code_rows_become_a_request_for_a_function(hub):
    serve(hub, "humaneval", "test.jsonl", lines({"prompt": "def f(x):\n"}))
    ((question,),) = fetch_workload("humaneval", 1).conversations
    assert "Complete this Python function" in question and "def f(x):" in question
    serve(hub, "mbpp", "data/sanitized.jsonl", lines({"prompt": "Add.", "test_list": ["assert add(1, 2) == 3"]}))
    assert fetch_workload("mbpp", 1).conversations[0][0].endswith("assert add(1, 2) == 3")


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_a_parquet_file_is_read_through_pyarrow(hub):
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pyarrow.table({"question": ["a?", "b?", "c?"]}), buffer)
    serve(hub, "gsm8k", "main/test-00000-of-00001.parquet", buffer.getvalue())
    assert fetch_workload("gsm8k", 2).conversations == (("a?",), ("b?",))


def test_without_pyarrow_a_parquet_file_is_one_line_that_says_what_to_install(hub, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    serve(hub, "gsm8k", "main/test-00000-of-00001.parquet", b"PAR1")
    with pytest.raises(LoadError, match="pip install pyarrow"):
        fetch_workload("gsm8k", 2)


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("other.txt", b"", "has no file like"),
        ("test.jsonl", b"{", "is not JSON line by line"),
        ("test.jsonl", b'{"solution": "x"}', "has no problem"),
        ("test.jsonl", b"", "holds no rows"),
    ],
)
def test_a_data_set_that_has_changed_is_refused_in_one_line(hub, path, content, words):
    serve(hub, "math500", path, content)
    with pytest.raises(LoadError, match=words):
        fetch_workload("math500", 2)


def test_a_fetched_data_set_is_read_again_offline(hub, monkeypatch):
    serve(hub, "math500", "test.jsonl", lines({"problem": "1 + 1?"}))
    fetch_workload("math500", 1)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    asked = len(hub.seen)
    assert fetch_workload("math500", 1).conversations == (("1 + 1?",),) and len(hub.seen) == asked


def test_offline_without_a_copy_is_one_line(cache, cli, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    outcome = cli("run", "--model", "demo", "--dataset", "gsm8k")
    assert outcome.code == 1 and len(outcome.err.splitlines()) == 1
    assert "HF_HUB_OFFLINE is set and the data set openai/gsm8k is not in the cache" in outcome.err


def test_no_network_is_one_line(cache, cli, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda _: None)
    close_session()
    outcome = cli("run", "--model", "demo", "--dataset", "gsm8k")
    close_session()
    assert outcome.code == 1 and len(outcome.err.splitlines()) == 1 and "cannot be reached" in outcome.err


def test_an_unknown_data_set_is_a_usage_error():
    with pytest.raises(UsageError, match="Give one of gsm8k, math500, humaneval, mbpp, mt-bench"):
        fetch_workload("imagenet", 1)
