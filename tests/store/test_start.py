"""From an empty cache to an answer: nothing is fetched unasked, and a full cache is enough without a network."""

import json

import pytest

from folders import write_drafter, write_target

ASK = ("generate", "--model", "some/target", "--draft", "some/drafter", "-n", 4, "--json", "hello")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    return write_target(root / "target", shards=2), write_drafter(root / "drafter")


@pytest.fixture
def pair(hub, folders):
    """A tiny pair on the Hub."""
    return [hub.add_folder(name, folder) for name, folder in zip(("some/target", "some/drafter"), folders, strict=True)]


@pytest.fixture
def terminal(monkeypatch):
    """Call it with an answer to have a terminal on which it is typed."""

    def answer(word: bool) -> list[str]:
        asked: list[str] = []
        monkeypatch.setattr("dflash2_mlx.cli.pull._on_terminal", lambda: True)
        monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text) or word)
        return asked

    return answer


def test_without_a_terminal_the_command_that_fetches_is_said_and_nothing_is_asked_for(cli, hub, pair):
    outcome = cli(*ASK)
    assert outcome.code == 1 and "dflash2-mlx pull some/target" in outcome.err and not hub.seen


def test_a_full_cache_starts_without_a_single_request(cli, hub, pair):
    assert cli("pull", "some/target").code == 0 and cli("pull", "some/drafter").code == 0
    hub.seen.clear()
    answer = json.loads(cli(*ASK).out)
    assert answer["completion_tokens"] == 4 and answer["rounds"] and not hub.seen


def test_on_a_terminal_the_size_is_asked_and_no_means_no(cli, hub, pair, terminal):
    asked = terminal(False)
    outcome = cli(*ASK)
    assert len(asked) == 1 and "some/target and some/drafter: not in the cache. Fetch " in asked[0]
    assert outcome.code == 1 and not hub.fetches("")


@pytest.mark.slow
def test_on_a_terminal_yes_fetches_both_and_answers(cli, hub, pair, terminal):
    terminal(True)
    outcome = cli(*ASK)
    assert outcome.code == 0 and len(hub.fetches("safetensors")) == 4


def test_offline_the_terminal_is_not_asked(cli, hub, pair, terminal, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    asked = terminal(True)
    assert cli(*ASK).code == 1 and not asked and not hub.seen


def test_half_a_pull_is_not_loaded(cli, hub, pair):
    hub.fail("model-00002", 503)
    cli("pull", "some/target")
    assert "dflash2-mlx pull some/target" in cli(*ASK).err
    outcome = cli("generate", "--model", f"some/target@{pair[0].commit}", "--no-draft", "hello")
    assert outcome.code == 1 and "is incomplete: model-00002" in outcome.err


def test_the_list_of_models_says_what_is_there_and_asks_nobody(cli, hub, folders):
    for name, folder in zip(("mlx-community/Qwen3-4B-4bit", "z-lab/Qwen3-4B-DFlash-b16"), folders, strict=True):
        hub.add_folder(name, folder)
    cli("pull", "qwen3-4b", "--target-only")
    hub.seen.clear()
    lines = cli("models").out.splitlines()
    assert any(line.startswith("qwen3-4b ") and line.endswith(" drafter not there") for line in lines)
    (flagship,) = (line.split() for line in lines if line.startswith("qwen3.8-27b "))
    assert flagship[1:3] == ["19.9", "GB"] and flagship[-2:] == ["not", "there"] and not hub.seen


def test_doctor_names_the_commit_that_a_floating_name_means(cli, hub, pair):
    cli("pull", "some/target")
    outcome = cli("doctor", "some/target", "--draft", "some/drafter")
    assert f"target    some/target (in the cache, commit {pair[0].commit})" in outcome.out
    assert "drafter   some/drafter (not there)" in outcome.out


def test_the_list_of_models_keeps_within_80_columns_and_makes_up_no_size(cli, cache):
    out = cli("models").out
    assert max(map(len, out.splitlines())) <= 80 and "unknown" not in out


def test_the_list_of_models_is_one_document_where_asked(cli, hub, folders):
    hub.add_folder("mlx-community/Qwen3-4B-4bit", folders[0])
    cli("pull", "qwen3-4b", "--target-only")
    pairs = {pair["alias"]: pair for pair in json.loads(cli("models", "--json").out)["pairs"]}
    assert pairs["demo"]["verdict"] == "fits" and pairs["demo"]["bytes"] > 10_000_000
    half, flagship = pairs["qwen3-4b"], pairs["qwen3.8-27b"]
    assert half["states"] == {"target": "in the cache", "drafter": "not there"} and half["bytes"] is None
    assert len(half["commits"]["target"]) == 40 and half["commits"]["drafter"] is None
    assert flagship["bytes"] == 19_898_817_896 and flagship["method"] == "DFlash 2" and flagship["block_size"] == 8


def test_a_pair_of_the_table_is_fetched_by_its_alias(cli, cache, monkeypatch):
    monkeypatch.setenv("DFLASH2_SKIP_FIT", "1")
    for name in ("qwen3.8-27b", "mlx-community/Qwen3.8-27B-4bit"):
        assert cli("generate", "-m", name, "hello").err.endswith("Fetch it with: dflash2-mlx pull qwen3.8-27b\n")


def test_a_snapshot_that_another_program_left_without_a_tokenizer_names_the_file_and_the_command(cli, hub, pair):
    from huggingface_hub import snapshot_download

    snapshot_download("some/target", ignore_patterns=["tokenizer*"])
    outcome = cli(*ASK)
    assert outcome.code == 1 and outcome.err.count("\n") == 1 and "there is no tokenizer.json" in outcome.err
    assert outcome.err.endswith("Fetch it again: dflash2-mlx pull some/target\n")
    assert cli("pull", "some/target").code == 0 and cli("pull", "some/drafter").code == 0
    assert cli(*ASK).code == 0


def test_the_list_of_models_and_doctor_agree_on_a_model_that_cannot_be_loaded(cli, hub, folders):
    from huggingface_hub import snapshot_download

    hub.add_folder("mlx-community/Qwen3-4B-4bit", folders[0])
    snapshot_download("mlx-community/Qwen3-4B-4bit", ignore_patterns=["tokenizer*"])
    (line,) = (line for line in cli("models").out.splitlines() if line.startswith("qwen3-4b "))
    assert line.endswith(" unusable, see doctor")
    outcome = cli("doctor", "qwen3-4b")
    assert outcome.code == 1 and "verdict   unusable: " in outcome.out and "there is no tokenizer.json" in outcome.out
