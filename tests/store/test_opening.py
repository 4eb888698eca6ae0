"""A pair is opened once: every name resolved once, every folder listed and every config and header read once."""

import io
import os
import pathlib
import sys
from collections import Counter
from pathlib import Path

import pytest

from dflash2_mlx.config import LoadParams, SamplingParams
from dflash2_mlx.store import opening
from dflash2_mlx.store.opening import open_pair
from folders import change_config
from machines import linux


def caller_is_ours() -> bool:
    """Whether this package asked pathlib for it, and no library."""
    frame = sys._getframe(2)
    while frame and frame.f_globals.get("__name__") in ("pathlib", "pathlib._local", __name__):
        frame = frame.f_back
    return bool(frame) and str(frame.f_globals.get("__name__")).startswith("dflash2_mlx")


@pytest.fixture
def counted(monkeypatch):
    """Counts what this package opens and lists, by path, and the names that it resolves."""
    found = Counter()

    def counting(real, kind):
        def call(path, *given, **named):
            if caller_is_ours():
                found[kind, os.path.realpath(path)] += 1
            return real(path, *given, **named)

        return call

    monkeypatch.setattr(io, "open", counting(io.open, "opened"))
    monkeypatch.setattr(pathlib.os, "listdir", counting(os.listdir, "listed"))
    real_name, real_pair = opening.read_name, opening.target_and_drafter
    monkeypatch.setattr(opening, "read_name", lambda *given: found.update([("named", given[0])]) or real_name(*given))
    monkeypatch.setattr(
        opening, "target_and_drafter", lambda params: found.update([("pair", params.model)]) or real_pair(params)
    )
    return found


def once(found: Counter, *kinds: str) -> set[str]:
    """Names of the files opened once; none was opened, listed or resolved twice."""
    twice = {what: count for what, count in found.items() if count > 1 and not what[1].startswith(("/proc", "/sys"))}
    assert not twice
    return {Path(path).name for kind, path in found if kind in kinds}


def test_loading_opens_every_file_of_the_pair_once(counted):
    from dflash2_mlx import load

    load("demo")
    assert {"config.json", "model.safetensors", "generation_config.json"} <= once(counted, "opened")
    assert sum(kind == "named" for kind, _ in counted) == 2 and ("pair", "demo") in counted


def test_doctor_opens_every_file_of_the_pair_once(cli, stored, counted):
    assert cli("doctor", stored[0], "--draft", stored[1]).code == 0
    assert {"config.json", "model.safetensors"} <= once(counted, "opened")


def test_answering_opens_every_file_of_the_pair_once(cli, stored, counted):
    assert cli("generate", "-m", stored[0], "--draft", stored[1], "-n", 1, "hello").code == 0
    assert {"config.json", "model.safetensors", "generation_config.json"} <= once(counted, "opened")


def test_the_list_of_models_resolves_no_name_twice_for_one_pair(cli, cache, counted, monkeypatch):
    monkeypatch.setattr("dflash2_mlx.cli.models.probe", linux)
    assert cli("models").code == 0
    pairs = [count for (kind, _), count in counted.items() if kind == "pair"]
    names = sum(count for (kind, _), count in counted.items() if kind == "named")
    assert set(pairs) == {1} and names == 2 * len(pairs)


def test_another_drafter_under_the_same_target_opens_the_drafter_only(stored, counted):
    from dflash2_mlx.loading.load import load_pair, with_drafter

    pair = load_pair(LoadParams(str(stored[0]), speculate=False))
    counted.clear()
    again = with_drafter(pair, str(stored[1]))
    assert again.drafter and again.target.module is pair.target.module
    once(counted)
    assert all(str(stored[1]) in path for kind, path in counted if kind == "opened" and "/proc/" not in path)


def test_an_opened_pair_says_what_is_missing_and_how_to_fetch_it(cache):
    flagship, half = open_pair(LoadParams("qwen3.8-27b")), open_pair(LoadParams("qwen3.8-27b", "some/drafter"))
    assert [model.state for model in flagship.missing] == ["not there"] * 2
    assert flagship.fetch == "dflash2-mlx pull qwen3.8-27b"
    assert half.fetch == "dflash2-mlx pull qwen3.8-27b && dflash2-mlx pull some/drafter"
    assert open_pair(LoadParams("demo")).missing == ()


def test_a_drafter_of_the_table_is_fetched_by_its_alias(cache, stored):
    opened = open_pair(LoadParams(str(stored[0]), "muse-glimmer-30b-assistant"))
    assert opened.fetch == "dflash2-mlx pull muse-glimmer-30b-assistant --draft-only"


def test_a_fault_of_one_model_is_kept_with_it(pair):
    change_config(pair[1], block_size=0)
    opened = open_pair(LoadParams(str(pair[0]), str(pair[1])))
    assert opened.target.fault is None and "block_size" in str(opened.drafter.fault)


def test_a_top_k_of_minus_one_is_off_for_callers_too():
    assert SamplingParams(top_k=-1).top_k == 0


def test_nobody_outside_the_store_resolves_a_name_or_reads_a_header():
    package = Path(opening.__file__).parents[1]
    opens = (
        "read_name",
        "snapshot_folder",
        "list_folder",
        "shard_names",
        "read_weights",
        "read_header",
        "read_manifest",
    )
    for path in package.rglob("*.py"):
        if path.parent.name != "store":
            words = set(path.read_text(encoding="utf-8").replace("(", " ").replace(",", " ").split())
            assert not words & set(opens), path
