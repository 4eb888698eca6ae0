"""`dflash2-mlx verify`: every wrong file named, against the Hub or against what the pull stored."""

import pytest

from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.manifest import Manifest, StoredFile, write_manifest
from folders import find_folder


@pytest.fixture
def pulled(cli, repo):
    """The folder of a finished pull."""
    assert cli("pull", "some/model").code == 0
    return find_folder("some/model")


@pytest.fixture
def offline(monkeypatch):
    """Call it to go offline."""
    return lambda: monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def damage(path):
    """Change the last byte, keeping the size."""
    blob = path.resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"\xff")


def test_whole_files_are_right_and_their_commit_is_named(cli, pulled):
    outcome = cli("verify", "some/model")
    assert outcome.code == 0 and f"some/model@{pulled.name}: 3 files, 65.9 kB, all right (the Hub)" in outcome.out


def test_offline_the_stored_hashes_decide_and_nothing_is_asked(cli, pulled, hub, offline):
    offline()
    hub.seen.clear()
    outcome = cli("verify", "some/model")
    assert outcome.code == 0 and "hashes that pull stored" in outcome.out and not hub.seen


@pytest.mark.parametrize("online", [True, False])
def test_every_wrong_file_is_named(cli, pulled, offline, online):
    damage(pulled / "model.safetensors")
    damage(pulled / "config.json")
    if not online:
        offline()
    outcome = cli("verify", "some/model")
    assert outcome.code == 1 and outcome.err.splitlines()[-1].endswith("dflash2-mlx pull some/model")
    assert all(str(pulled / name) in outcome.out for name in ("model.safetensors", "config.json"))


def test_a_model_found_damaged_is_not_loaded_any_more(cli, pulled):
    damage(pulled / "model.safetensors")
    cli("verify", "some/model")
    with pytest.raises(
        LoadError, match=r"damaged: the sha256 of model.safetensors is wrong.*dflash2-mlx pull some/model"
    ):
        find_folder("some/model")


def test_a_missing_and_a_cut_file_are_named(cli, pulled):
    (pulled / "tokenizer.json").unlink()
    (pulled / "config.json").resolve().write_bytes(b"{")
    outcome = cli("verify", "some/model")
    assert outcome.code == 1 and "tokenizer.json: missing" in outcome.out
    assert "config.json: it has 1 bytes and should have 23" in outcome.out


def test_what_another_program_fetched_is_verified_online_only(cli, repo, offline):
    from huggingface_hub import snapshot_download

    snapshot_download("some/model")
    offline()
    outcome = cli("verify", "some/model")
    assert outcome.code == 1 and "no pull stored its hashes" in outcome.err and "HF_HUB_OFFLINE" in outcome.err


def test_a_model_that_is_not_cached_is_not_verified(cli, hub):
    outcome = cli("verify", "some/model")
    assert outcome.code == 1 and "dflash2-mlx pull some/model" in outcome.err


def test_a_read_only_cache_is_verified_too(cli, pulled, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("dflash2_mlx.store.verifying.write_manifest", refuse)
    assert cli("verify", "some/model").code == 0


def test_a_folder_without_hashes_is_whole_and_told_how_to_note_them(cli, pair):
    outcome = cli("verify", pair[0])
    assert outcome.code == 0 and f"no hashes are recorded: dflash2-mlx verify --record {pair[0]}" in outcome.out


def test_the_advice_for_a_folder_with_spaces_can_be_typed(cli, pair):
    spaced = pair[0].rename(pair[0].parent / "my model")
    assert f"--record '{spaced}'" in cli("verify", spaced).out


def test_a_flipped_bit_in_a_recorded_folder_is_found_and_loads_no_more(cli, pair):
    assert cli("verify", "--record", pair[0]).code == 0 and cli("verify", pair[0]).code == 0
    weights = (pair[0] / "model.safetensors").read_bytes()
    (pair[0] / "model.safetensors").write_bytes(weights[:-1] + b"\xff")
    outcome = cli("verify", pair[0])
    assert outcome.code == 1 and f"{pair[0] / 'model.safetensors'}: its sha256 is" in outcome.out
    with pytest.raises(LoadError, match=f"damaged: the sha256 of model.safetensors.*dflash2-mlx verify {pair[0]}"):
        find_folder(str(pair[0]))
    (pair[0] / "model.safetensors").write_bytes(weights)
    assert cli("verify", pair[0]).code == 0 and find_folder(str(pair[0])) == pair[0]


def test_a_drafters_folder_can_be_recorded_too_and_anew(cli, pair):
    assert cli("verify", "--record", pair[1]).code == 0
    (pair[1] / "config.json").write_text((pair[1] / "config.json").read_text() + " ")
    assert cli("verify", pair[1]).code == 1 and cli("verify", "--record", pair[1]).code == 0
    assert cli("verify", pair[1]).code == 0 and find_folder(str(pair[1]))


def test_a_broken_folder_and_a_repository_are_not_recorded(cli, pair, pulled):
    (pair[0] / "model.safetensors").write_bytes(b"")
    assert "the file is empty" in cli("verify", "--record", pair[0]).err
    for name in ("some/model", "demo"):
        outcome = cli("verify", "--record", name)
        assert outcome.code == 1 and "has published hashes" in outcome.err


def test_without_a_pair_what_answers_here_is_verified(cli, cache):
    assert "demo/target" in cli("verify").out


def test_a_file_name_that_steers_a_terminal_is_shown_as_escapes(cli, pair):
    write_manifest(pair[0], Manifest({"\x1b]0;owned\x07.json": StoredFile(3, "00")}))
    outcome = cli("verify", pair[0])
    assert outcome.code == 1 and r"\x1b]0;owned\x07.json: missing" in outcome.out and "\x1b" not in outcome.out


def test_files_that_are_as_published_and_yet_no_model_are_not_called_whole(cli, hub, repo, pair):
    weights, index = (
        repo.files["model.safetensors"],
        b'{"weight_map": {"layer.0": "model.safetensors", "x": "zz.safetensors"}}',
    )
    hub.add("some/model", {**repo.files, "model.safetensors.index.json": index, "model-2.safetensors": weights})
    assert cli("pull", "some/model").code == 0
    outcome = cli("verify", "some/model")
    assert outcome.code == 1 and "incomplete: zz.safetensors missing" in outcome.err
    (pair[0] / "model-2.safetensors").write_bytes((pair[0] / "model.safetensors").read_bytes())
    outcome = cli("verify", pair[0])
    assert outcome.code == 1 and "stands in model-2.safetensors too" in outcome.err
