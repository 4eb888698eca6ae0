"""`dflash2-mlx pull` against a stub Hub: what arrives, what is resumed, and every failure in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.hub import Repository, snapshot_folder
from dflash2_mlx.store.manifest import read_manifest
from dflash2_mlx.store.opening import open_model
from folders import find_folder, write_drafter
from machines import mac

ROOT = Path(__file__).parents[2]


def failed(outcome, *words):
    """One line on stderr after the talk, exit 1, nothing on stdout, and nothing that a later run would load."""
    assert outcome.code == 1 and outcome.out == "", outcome
    lines = [line for line in outcome.err.splitlines() if not line.endswith("to fetch")]
    assert len(lines) == 1 and lines[0].startswith("dflash2-mlx: "), outcome.err
    for word in words:
        assert word in lines[0], lines[0]
    with pytest.raises(LoadError, match="dflash2-mlx pull some/model"):
        find_folder("some/model")
    return True


def leftovers(cache):
    return [path for path in cache.rglob("*") if path.name.endswith((".incomplete", ".part", ".tmp"))]


def test_a_pull_fetches_what_a_model_needs_and_names_the_commit(cli, repo):
    outcome = cli("pull", "some/model")
    assert outcome.code == 0 and outcome.out.startswith(f"some/model@{repo.commit}  ")
    folder = find_folder("some/model")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert all((folder / name).read_bytes() == repo.files[name] for name in ("config.json", "model.safetensors"))


def test_a_pull_stores_the_hash_of_every_file(cli, repo):
    cli("pull", "some/model")
    manifest = read_manifest(find_folder("some/model"))
    assert manifest.hashed and manifest.files.keys() == {"config.json", "model.safetensors", "tokenizer.json"}


def test_without_a_terminal_there_are_no_progress_bars(cli, repo):
    assert cli("pull", "some/model").err.count("\n") == 1


def test_a_second_pull_fetches_nothing(cli, repo, hub):
    cli("pull", "some/model")
    hub.seen.clear()
    assert cli("pull", "some/model").code == 0 and not hub.fetches("") and len(hub.seen) == 1


def test_a_pinned_revision_is_fetched_and_found_under_its_name(cli, repo):
    repo.refs.append("v1")
    assert cli("pull", "some/model@v1").code == 0
    assert find_folder("some/model", "v1") == find_folder(f"some/model@{repo.commit}")
    with pytest.raises(LoadError):
        find_folder("some/model")


def test_a_new_commit_is_fetched_beside_the_old_one(cli, repo, hub):
    cli("pull", "some/model")
    newer = hub.add("some/model", {**repo.files, "config.json": b'{"model_type": "llama"}'})
    hub.seen.clear()
    assert cli("pull", "some/model").code == 0 and find_folder("some/model").name == newer.commit
    assert len(hub.fetches("config.json")) == 1 and not hub.fetches("safetensors")


def test_an_update_that_fails_leaves_the_old_commit_usable(cli, repo, hub):
    cli("pull", "some/model")
    hub.add("some/model", {**repo.files, "model.safetensors": repo.files["model.safetensors"][::-1]})
    hub.fail("model.safetensors", 503)
    assert cli("pull", "some/model").code == 1 and find_folder("some/model").name == repo.commit


@pytest.mark.parametrize("part", ["/api/models/some/model", "model.safetensors"])
@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (401, {}, ("401", "HF_TOKEN", "some/model")),
        (403, {"X_Error_Code": "GatedRepo"}, ("gated", "accept its terms at", "some/model", "HF_TOKEN")),
        (403, {}, ("403", "accept its terms at", "HF_TOKEN")),
        (429, {}, ("429", "too many requests", "in some minutes")),
        (503, {}, ("503", "also after waiting")),
    ],
)
def test_an_answer_that_refuses_is_one_line(cli, hub, repo, part, status, headers, words):
    hub.fail(part, status, **headers)
    assert failed(cli("pull", "some/model"), *words)


def test_a_repository_that_is_not_there(cli, hub):
    assert failed(cli("pull", "some/model"), "has no some/model (404)", "spelling", hub.url)


def test_a_revision_that_is_not_there(cli, repo):
    outcome = cli("pull", "some/model@nowhere")
    assert failed(outcome, "no revision nowhere", "spelling")


@pytest.mark.slow
@pytest.mark.parametrize("part", ["/api/models/", "/resolve/"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_recovers_is_asked_again(cli, hub, repo, part, status):
    hub.fail(part, status, times=2)
    assert cli("pull", "some/model").code == 0 and find_folder("some/model")


def test_a_cut_transfer_goes_on_where_it_was_cut_and_ends_identical(cli, repo, hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    repo.cut_after["model.safetensors"] = (20_000, 2)
    assert cli("pull", "some/model").code == 0
    ranges = [seen.range for seen in hub.fetches("model.safetensors")]
    assert ranges[0] is None and ranges[1:] == ["bytes=20000-", "bytes=40000-"]
    assert (find_folder("some/model") / "model.safetensors").read_bytes() == repo.files["model.safetensors"]


def test_a_transfer_that_is_always_cut_leaves_nothing_half_written(cli, repo, cache):
    repo.cut_after["model.safetensors"] = (20_000, 1000)
    assert failed(cli("pull", "some/model"), "was cut", "finished files are kept")
    assert not leftovers(cache)


def test_the_next_pull_keeps_finished_files_and_ends_identical(cli, repo, hub):
    repo.cut_after["model.safetensors"] = (20_000, 1000)
    cli("pull", "some/model")
    repo.cut_after.clear()
    hub.seen.clear()
    assert cli("pull", "some/model").code == 0 and len(hub.fetches("")) == 1
    assert all(
        (find_folder("some/model") / name).read_bytes() == repo.files[name]
        for name in ("config.json", "model.safetensors")
    )


def test_a_pull_that_is_stopped_and_run_again_fetches_no_finished_file_twice(cli, hub, repo):
    shards = {f"model-{i:05d}-of-00006.safetensors": repo.files["model.safetensors"] + bytes([i]) for i in range(1, 7)}
    served = hub.add("some/model", {"config.json": repo.files["config.json"], **shards})
    served.cut_after["model-00005-of-00006.safetensors"] = (20_000, 1000)
    assert cli("pull", "some/model").code == 1
    blobs = snapshot_folder(Repository("some/model", served.commit)).parents[1] / "blobs"
    finished = sum(path.stat().st_size > 60_000 for path in blobs.iterdir())
    served.cut_after.clear()
    hub.seen.clear()
    assert cli("pull", "some/model").code == 0 and len(hub.fetches("model-")) == 6 - finished <= 2
    folder = open_model("some/model").folder
    assert all((folder / name).read_bytes() == content for name, content in served.files.items())


def test_the_help_says_what_a_second_run_keeps(cli):
    told = " ".join(cli("pull", "--help").out.split())
    assert "whole files are kept, and one that was under way starts over" in told


def test_bytes_that_are_not_those_of_the_etag_are_fetched_once_more_then_refused(cli, repo, hub, cache):
    repo.sent["model.safetensors"] = repo.files["model.safetensors"][::-1]
    assert failed(cli("pull", "some/model"), "model.safetensors", "damaged twice", "sha256")
    assert len(hub.fetches("model.safetensors")) == 2 and not leftovers(cache)
    assert not (snapshot_folder(Repository("some/model", repo.commit)) / "model.safetensors").exists()


def test_a_small_file_is_checked_by_its_git_hash(cli, repo):
    repo.sent["config.json"] = b'{"model_type": "qwen4"}'
    assert failed(cli("pull", "some/model"), "config.json", "git sha1")


def test_a_file_damaged_on_disk_is_fetched_again(cli, repo):
    cli("pull", "some/model")
    path = find_folder("some/model") / "model.safetensors"
    path.resolve().write_bytes(b"x" * path.stat().st_size)
    assert cli("verify", "some/model").code == 1
    assert cli("pull", "some/model").code == 0 and path.read_bytes() == repo.files["model.safetensors"]


def test_a_slow_link_is_waited_for(cli, repo):
    repo.pause_s = 0.02
    assert cli("pull", "some/model").code == 0


@pytest.mark.slow
def test_a_link_that_stalls_is_given_up(cli, repo, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    repo.pause_s = 0.3
    assert failed(cli("pull", "some/model"), "timed out")


def test_a_dead_endpoint_is_named(cli, cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert failed(cli("pull", "some/model"), "http://127.0.0.1:9 cannot be reached", "HF_ENDPOINT")


def test_a_dead_proxy_is_one_line(cli, hub, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://hub.invalid")
    assert failed(cli("pull", "some/model"), "http://hub.invalid cannot be reached", "proxies")


def test_the_environment_names_endpoint_and_cache(hub, repo, tmp_path):
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    environment.pop("HF_HUB_CACHE", None)
    command = [sys.executable, "-m", "dflash2_mlx", "pull", "some/model"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, cwd=ROOT)
    assert done.returncode == 0 and str(tmp_path / "home" / "hub" / "models--some--model") in done.stdout, done.stderr


def test_a_server_that_is_no_hub_is_named(cli, hub):
    hub.fail("/api/models/", 200)
    assert failed(cli("pull", "some/model"), hub.url, "does not answer as a Hub")


def test_offline_mode_is_honoured(cli, hub, repo, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert failed(cli("pull", "some/model"), "HF_HUB_OFFLINE") and not hub.seen


def test_a_full_disk_is_said_before_the_first_byte(cli, hub, repo, cache, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    assert failed(cli("pull", "some/model"), "need 65.9 kB, have 1.0 kB at", str(cache.parent), "HF_HOME")
    assert not hub.fetches("")


def test_a_cache_that_cannot_be_written_is_named(cli, repo, cache, monkeypatch):
    def refuse(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert failed(cli("pull", "some/model"), "not writable", "HF_HOME")


def test_a_token_in_the_environment_is_sent(cli, repo, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    outcome = cli("pull", "some/model")
    assert outcome.code == 0 and {seen.token for seen in hub.seen} == {"Bearer hf_secret"}
    assert "hf_secret" not in outcome.out + outcome.err


def test_a_repository_without_weights_is_refused(cli, hub):
    hub.add("some/model", {"config.json": b"{}", "model.gguf": b"gguf"})
    assert failed(cli("pull", "some/model"), "no safetensors")


@pytest.mark.parametrize(("options", "words"), [(("--target-only", "--draft-only"), "excludes")])
def test_options_that_exclude_each_other(cli, cache, options, words):
    outcome = cli("pull", *options)
    assert outcome.code == 2 and words in outcome.err


@pytest.mark.parametrize(
    ("options", "fetched"),
    [
        ((), {"mlx-community/Qwen3-4B-4bit", "z-lab/Qwen3-4B-DFlash-b16"}),
        (("--target-only",), {"mlx-community/Qwen3-4B-4bit"}),
        (("--draft-only",), {"z-lab/Qwen3-4B-DFlash-b16"}),
    ],
)
def test_an_alias_is_target_and_drafter(cli, hub, repo, options, fetched):
    for name in ("mlx-community/Qwen3-4B-4bit", "z-lab/Qwen3-4B-DFlash-b16"):
        hub.add(name, repo.files)
    lines = cli("pull", "qwen3-4b", *options).out.splitlines()
    assert {line.split("@")[0] for line in lines} == fetched


def test_a_pair_that_does_not_fit_is_said_first_and_fetched_all_the_same(cli, hub, repo, monkeypatch):
    monkeypatch.setattr("dflash2_mlx.memory.verdict.probe", lambda: mac(16))
    for name in ("mlx-community/Muse-Glimmer-30B-4bit", "z-lab/Muse-Glimmer-30B-DFlash2"):
        hub.add(name, repo.files)
    outcome = cli("pull", "muse-glimmer-30b")
    assert outcome.code == 0 and "does not fit this machine" in outcome.err.splitlines()[0] and hub.fetches("")


def test_the_bundled_pair_needs_no_network(cli, hub):
    outcome = cli("pull", "demo")
    assert outcome.code == 0 and "nothing to fetch" in outcome.err and not hub.seen


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DFLASH2_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "drafters"


def test_a_drafter_is_kept_quantised_where_asked(cli, hub, tmp_path, kept):
    served = hub.add_folder("some/drafter", write_drafter(tmp_path / "drafter"))
    outcome = cli("pull", "some/drafter", "--draft-bits", 4)
    (folder,) = kept.iterdir()
    assert outcome.code == 0 and outcome.out.splitlines()[-1] == f"4-bit drafter  {folder}"
    assert folder.name.startswith(f"some--drafter-{served.commit[:7]}-") and folder.name.endswith("-4bit")


def test_the_bundled_drafter_can_be_kept_quantised_too(cli, hub, kept):
    assert cli("pull", "demo", "--draft-bits", 8).code == 0 and len(list(kept.iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("demo", "--draft-bits", 16), 2, "Give 4 or 8"),
        (("demo", "--draft-bits", 4, "--target-only"), 2, "--target-only leaves out"),
        (("some/model", "--draft-bits", 4), 1, "is no drafter"),
    ],
)
def test_bits_that_cannot_be_kept_are_refused(cli, hub, repo, kept, arguments, code, words):
    outcome = cli("pull", *arguments)
    assert outcome.code == code and words in outcome.err and not kept.exists()
