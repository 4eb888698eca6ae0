"""What a name means and where its files are: folders, the package, the cache. No network is touched, ever."""

import json

import pytest
from store.conftest import safetensors

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.opening import open_model
from dflash2_mlx.store.pairs import KNOWN_PAIRS
from folders import find_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cached(cache, hub):
    """A sharded snapshot as other programs leave it; the Hub next to it must not be asked."""
    folder = cache / "models--some--model" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")
    for number, name in enumerate(("a", "b"), 1):
        (folder / f"model-{number}.safetensors").write_bytes(safetensors(name))
    (cache / "models--some--model" / "refs").mkdir()
    (cache / "models--some--model" / "refs" / "main").write_text(COMMIT)
    yield folder
    assert not hub.seen


@pytest.mark.parametrize("name", ["some/model", f"some/model@{COMMIT}", "some/model@main"])
def test_a_cached_repository_is_found_by_branch_and_by_commit(cached, name):
    assert find_folder(name) == cached


def test_a_revision_given_apart_wins_over_that_of_the_name(cached):
    assert find_folder("some/model@other", "main") == cached


def test_another_revision_than_the_cached_one_is_not_taken_for_it(cached):
    with pytest.raises(LoadError, match="dflash2-mlx pull some/model@v2"):
        find_folder("some/model@v2")


def test_an_incomplete_snapshot_names_what_is_missing(cached):
    (cached / "model-2.safetensors").unlink()
    with pytest.raises(LoadError, match=r"incomplete: model-2.safetensors missing.*dflash2-mlx pull some/model"):
        find_folder("some/model")
    assert open_model("some/model").state == "incomplete"


def test_a_read_only_cache_is_read(cached, monkeypatch):
    monkeypatch.setattr("pathlib.Path.write_text", None)
    monkeypatch.setattr("pathlib.Path.mkdir", None)
    assert find_folder("some/model") == cached


@pytest.mark.parametrize("name", ["./nowhere", "~/nowhere", "/nowhere/at/all", "no-slash", "a/b/c"])
def test_a_path_that_is_not_there_is_called_a_folder(cache, name):
    with pytest.raises(LoadError, match="there is no folder"):
        find_folder(name)


@pytest.mark.parametrize("name", ["-some/model", "some/model.", "so--me/model", "some/" + "x" * 120, "some/mo..del"])
def test_an_id_that_the_hub_does_not_allow_is_refused(cache, name):
    with pytest.raises(LoadError, match="not a repository id"):
        find_folder(name)


@pytest.mark.parametrize("revision", ["../../elsewhere", "/abs/dir", "a//b", "a/", "./a", "refs/.hidden"])
@pytest.mark.parametrize("apart", [True, False])
def test_a_revision_that_leaves_the_cache_is_refused(cache, revision, apart):
    with pytest.raises(LoadError, match="not a revision"):
        find_folder(*(("some/model", revision) if apart else (f"some/model@{revision}",)))


@pytest.mark.parametrize(
    "name",
    ["a/b\n", "a/b@c\n", "a/b@c\nd", "a/b\0", "a/b@", "\u0430/b", "a" * 5000, "~nobody-of-this-name/x", "package:../x"],
)
def test_a_name_that_only_looks_like_an_id_is_refused(cache, name):
    with pytest.raises(LoadError, match="there is no folder"):
        find_folder(name)


@pytest.mark.parametrize("content", [b"", b"\n", b"..", b"../../..", b"/etc", b".", b"a/b", b"\xff"])
def test_a_reference_that_names_no_commit_leads_nowhere(cached, cache, content):
    (cache / "models--some--model" / "refs" / "main").write_bytes(content)
    with pytest.raises(LoadError, match="does not say which commit"):
        find_folder("some/model")


def test_a_snapshot_that_nothing_points_to_is_named(cached, cache):
    (cache / "models--some--model" / "refs" / "main").unlink()
    with pytest.raises(LoadError, match=rf"no refs/main.*Name one, as some/model@{COMMIT}.*dflash2-mlx pull some/mod"):
        find_folder("some/model")


@pytest.mark.parametrize("name", ["quen3.8-27b", "qwen3.8-27B-8bits", "mus-glimmer-30b", "demoo", "demo@v1"])
def test_a_misspelt_alias_is_guessed(cache, name):
    with pytest.raises(LoadError, match=r"Did you mean (qwen3\.8-27b|qwen3\.8-27b-8bit|muse-glimmer-30b|demo)\?"):
        find_folder(name)


@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}/../mödel dir"])
def test_a_folder_is_found_however_it_is_spelt(tmp_path, spelling):
    folder = tmp_path / "mödel dir"
    folder.mkdir()
    assert open_model(spelling.format(folder)).folder.samefile(folder)


def test_a_link_to_a_folder_is_a_folder(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert open_model(str(tmp_path / "link")).folder.samefile(tmp_path)


def test_every_known_pair_has_well_formed_names(cache):
    assert {open_model(name).state for pair in KNOWN_PAIRS for name in (pair.target, pair.drafter)} == {
        "bundled",
        "not there",
    }


@pytest.mark.parametrize("page", ["https://huggingface.co/a/b", "hf.co/a/b", "https://huggingface.co/a/b/tree/main"])
def test_the_address_of_a_page_is_told_as_its_id(cache, page):
    with pytest.raises(LoadError, match=r"Did you mean a/b\?"):
        find_folder(page)
