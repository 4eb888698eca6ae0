"""A drafter quantised once and kept: the same bits as on load, only of the same source, only whole."""

import json
import os
import shutil
import threading

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from dflash2_mlx.config import EngineParams, LoadParams
from dflash2_mlx.errors import LoadError, UnsupportedError
from dflash2_mlx.loading import drafters
from dflash2_mlx.loading.load import load_pair
from dflash2_mlx.store import saved
from dflash2_mlx.store.opening import open_drafter
from dflash2_mlx.store.saved import writing
from folders import change_config, change_tensors, write_drafter, write_target


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """The folder for quantised drafters, empty."""
    monkeypatch.setenv("DFLASH2_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "drafters"


@pytest.fixture
def pair(tmp_path):
    return write_target(tmp_path / "target"), write_drafter(tmp_path / "drafter")


@pytest.fixture
def quantised(monkeypatch):
    """Counts how often a drafter is quantised."""
    counted = []
    real = drafters.quantize_network
    monkeypatch.setattr(drafters, "quantize_network", lambda *given: counted.append(given[1]) or real(*given))
    return counted


def load(pair, bits=4):
    return load_pair(LoadParams(str(pair[0]), str(pair[1]), draft_bits=bits))


def save_drafter(folder, bits):
    return drafters.save_drafter(open_drafter(str(folder)), bits).folder


def find_saved(folder, bits):
    found = saved.find_saved(open_drafter(str(folder)), bits)
    return found.folder if found else None


def saved_folder(folder, bits):
    return saved.saved_folder(open_drafter(str(folder)), bits)


def tensors(pair):
    return dict(tree_flatten(pair.drafter.network.parameters()))


def same(one, other):
    assert one.keys() == other.keys()
    return all(one[name].dtype == other[name].dtype and mx.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_kept_drafter_is_bit_equal_to_one_quantised_on_load_and_is_read_instead(pair, quantised, bits):
    fresh = load(pair, bits)
    assert quantised == [bits]
    save_drafter(pair[1], bits)
    again = load(pair, bits)
    assert quantised == [bits, bits] and same(tensors(fresh), tensors(again))


def test_a_kept_drafter_drafts_the_same_tokens(pair):
    from dflash2_mlx import generate

    engine = EngineParams(max_tokens=24, block_size=8)
    fresh = generate(load(pair), "hello", engine=engine)
    save_drafter(pair[1], 4)
    again = generate(load(pair), "hello", engine=engine)
    assert (again.tokens, again.rounds) == (fresh.tokens, fresh.rounds)


def test_a_bf16_drafter_is_kept_in_its_own_precision(pair):
    path = pair[1] / "model.safetensors"
    mx.save_safetensors(str(path), {name: t.astype(mx.bfloat16) for name, t in mx.load(str(path)).items()})
    fresh = tensors(load(pair))
    save_drafter(pair[1], 4)
    again = tensors(load(pair))
    assert same(fresh, again) and again["fc.scales"].dtype == mx.bfloat16


def test_it_is_written_in_the_published_format(pair):
    folder = save_drafter(pair[1], 4)
    assert json.loads((folder / "config.json").read_text())["quantization"] == {"group_size": 64, "bits": 4}
    by_hand = load_pair(LoadParams(str(pair[0]), str(folder)))
    assert same(tensors(by_hand), tensors(load(pair)))


def test_other_bits_are_not_answered_by_it(pair, quantised):
    save_drafter(pair[1], 4)
    load(pair, 8)
    assert quantised == [4, 8]


def test_it_is_made_once(pair, quantised):
    assert save_drafter(pair[1], 4) == save_drafter(pair[1], 4) and quantised == [4]


@pytest.mark.parametrize("what", ["weights", "config", "touched"])
def test_a_changed_source_is_not_answered_by_an_old_copy(pair, what):
    save_drafter(pair[1], 4)
    path = pair[1] / "model.safetensors"
    if what == "weights":
        change_tensors(pair[1], {"norm.weight": None}, **{"norm.weight": mx.full((64,), 2.0)})
    elif what == "config":
        change_config(pair[1], rms_norm_eps=1e-5)
    else:
        os.utime(path, ns=(1, 1))
    assert find_saved(pair[1], 4) is None


@pytest.mark.parametrize("damage", ["cut", "no weights", "no config", "no json"])
def test_a_broken_copy_is_not_trusted_and_made_again(pair, quantised, damage):
    folder = save_drafter(pair[1], 4)
    weights, config = folder / "model.safetensors", folder / "config.json"
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "no json":
        config.write_text("{")
    else:
        (weights if damage == "no weights" else config).unlink()
    fresh = tensors(load(pair))
    assert quantised == [4, 4]
    assert save_drafter(pair[1], 4) == folder and same(tensors(load(pair)), fresh) and quantised == [4, 4, 4]


def test_a_write_that_fails_is_one_line_and_leaves_nothing(pair, kept, monkeypatch):
    def fail(*_):
        raise RuntimeError("[write] Unable to write 97695 bytes to file.")  # what MLX says of a full disk

    monkeypatch.setattr("mlx.core.save_safetensors", fail)
    with pytest.raises(LoadError, match=r"cannot be written to .*Unable to write.*DFLASH2_CACHE"):
        save_drafter(pair[1], 4)
    assert not list(kept.iterdir()) and find_saved(pair[1], 4) is None


def test_nothing_is_seen_before_all_is_written(pair, kept):
    folder = saved_folder(pair[1], 4)
    with writing(folder) as draft:
        (draft / "config.json").write_text("{}")
        assert not folder.exists()
    assert folder.exists() and list(kept.iterdir()) == [folder]


def test_a_whole_copy_that_another_process_has_made_meanwhile_stays(pair, kept):
    folder = saved_folder(pair[1], 4)
    with writing(folder) as draft:
        write_drafter(folder)  # the other one was faster
        inode = folder.stat().st_ino
        (draft / "config.json").write_text("{}")
    assert folder.stat().st_ino == inode and list(kept.iterdir()) == [folder]


def test_processes_that_quantise_the_same_drafter_at_once_all_end_well(pair, kept):
    folder = saved_folder(pair[1], 4)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{")  # a broken copy, which all of them find
    start, failed = threading.Barrier(8), []

    def write(number):
        try:
            start.wait()
            with writing(folder) as draft:
                shutil.copytree(pair[1], draft, dirs_exist_ok=True)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and find_saved(pair[1], 4) == folder and list(kept.iterdir()) == [folder]


def test_a_quantised_drafter_is_not_quantised_again(pair):
    folder = save_drafter(pair[1], 4)
    with pytest.raises(UnsupportedError, match="quantised already"):
        save_drafter(folder, 4)


def test_a_snapshot_is_recognised_by_repository_and_commit(tmp_path):
    source = write_drafter(tmp_path / "models--z-lab--Draft" / "snapshots" / ("a" * 40))
    assert saved_folder(source, 8).name.startswith("z-lab--Draft-aaaaaaa-")


def test_a_newer_copy_of_the_same_drafter_takes_the_place_of_the_older(pair, kept):
    other = save_drafter(write_drafter(pair[1].parent / "other"), 4)
    first, wider = save_drafter(pair[1], 4), save_drafter(pair[1], 8)
    change_config(pair[1], rms_norm_eps=1e-5)
    newer = save_drafter(pair[1], 4)
    assert newer != first and set(kept.iterdir()) == {newer, wider, other}


def test_a_copy_that_another_mlx_made_goes_when_it_is_made_again(pair, kept, monkeypatch):
    first = save_drafter(pair[1], 4)
    monkeypatch.setattr(saved, "version", lambda _: "0.99")
    assert [copy.used for copy in saved.saved_drafters()] == [False]
    newer = save_drafter(pair[1], 4)
    assert newer != first and list(kept.iterdir()) == [newer]


def test_copies_are_listed_and_those_of_no_use_are_given_back(cli, pair, kept, cache):
    used, gone = save_drafter(pair[1], 4), save_drafter(write_drafter(pair[1].parent / "gone"), 8)
    shutil.rmtree(pair[1].parent / "gone")
    (kept / ".half-written").mkdir()
    os.utime(kept / ".half-written", (1, 1))
    assert "quantised drafters that are kept: 3, " in cli("models").out
    told = cli("cache").out.splitlines()
    assert {line.split()[-1] for line in told if "of no use" in line} == {str(gone), str(kept / ".half-written")}
    outcome = cli("cache", "--clean")
    assert outcome.code == 0 and "given back" in outcome.out and list(kept.iterdir()) == [used]
    assert "--clean" not in cli("cache").out


def test_an_empty_cache_says_how_it_is_filled(cli, kept):
    assert "--draft-bits 4" in cli("cache").out


def test_a_copy_being_written_is_left_alone(pair, kept):
    with writing(saved_folder(pair[1], 4)) as draft:
        assert saved.remove_unused() == 0 and draft.is_dir()
