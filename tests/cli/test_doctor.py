"""`dflash2-mlx doctor`: its words on Macs of every size, on Linux, and where MLX does not load."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from folders import change_config, change_tensors
from machines import DLOPEN, intel_mac, linux, mac, rosetta_mac

FLAGSHIP = "qwen3.8-27b"


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    """No model is in the cache, no model is named by the environment, and nothing may connect anywhere."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DFLASH2_MODEL", raising=False)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("doctor used the network"))


@pytest.fixture
def on(cli, monkeypatch):
    """Runs doctor on a machine."""

    def run(machine, *args):
        monkeypatch.setattr("dflash2_mlx.cli.doctor.probe", lambda: machine)
        return cli("doctor", *args)

    return run


@pytest.mark.parametrize(
    ("memory", "chip", "code", "words"),
    [
        (16, "Apple M1", 1, "does not fit: 16.87 GiB of the 10.67 GiB that Metal recommends (158%)"),
        (24, "Apple M4 Pro", 1, "does not fit: 16.87 GiB of the 16.00 GiB that Metal recommends (105%)"),
        (32, "Apple M2 Max", 0, "fits: 16.87 GiB of the 21.33 GiB that Metal recommends (79%). Up to 73216 tokens"),
        (64, "Apple M3 Max", 0, "fits: 16.87 GiB of the 48.00 GiB that Metal recommends (35%). Up to 262144 tokens"),
        (128, "Apple M5 Max", 0, "fits: 16.87 GiB of the 107.52 GiB that Metal recommends (16%). Up to 262144 tokens"),
    ],
)
def test_the_verdict_on_the_flagship_for_macs_of_every_size(on, memory, chip, code, words):
    outcome = on(mac(memory, chip), FLAGSHIP)
    assert outcome.code == code and outcome.err == ""
    assert f"machine   {chip}, macOS 15.5, {memory}.00 GiB of memory" in outcome.out
    assert f"verdict   {words}" in outcome.out


def test_every_part_of_the_need_is_told(on):
    parts = on(mac(), FLAGSHIP).out
    for words in (
        "need        14.09 GiB  target weights",
        "1.18 GiB  drafter weights in 4 bits (3.58 GiB as stored)",
        "0.50 GiB  keys and values of the context",
        "0.29 GiB  recurrent state, with the copy kept for rollback",
        "100.0 MiB  features for the drafter",
        "16.87 GiB  in all",
    ):
        assert words in parts, parts


def test_a_pair_that_does_not_fit_comes_with_what_to_do_and_without_a_download(on):
    outcome = on(mac(24), FLAGSHIP).out
    assert "next      a shorter context: at most 768 tokens, prompt and answer together" in outcome
    assert "next      a smaller pair: `dflash2-mlx models` lists them; demo runs anywhere" in outcome
    assert "dflash2-mlx pull" not in outcome


def test_a_drafter_kept_as_stored_is_offered_in_4_bits(on):
    outcome = on(mac(32), FLAGSHIP, "--draft-bits", 16, "--context", 24576)
    assert "tight" in outcome.out and "quantise the drafter: --draft-bits 4" in outcome.out
    assert "close other programs" in outcome.out and outcome.code == 0


def test_a_tight_pair_may_run(on):
    outcome = on(mac(32), FLAGSHIP, "--context", 40000)
    assert outcome.code == 0 and "verdict   tight: 19.35 GiB of the 21.33 GiB" in outcome.out
    assert "above the 90% that leave the system room" in outcome.out


def test_doing_without_the_drafter_is_judged_too(on):
    outcome = on(mac(24), FLAGSHIP, "--no-draft", "--context", 2048)
    assert outcome.code == 0 and "drafter   none: switched off (--no-draft)" in outcome.out


def test_a_pair_that_is_not_there_comes_with_the_command_that_fetches_it(on):
    assert f"next      fetch the pair (19.9 GB): dflash2-mlx pull {FLAGSHIP}\n" in on(mac(64), FLAGSHIP).out


def test_a_full_disk_is_told_before_the_download(on):
    outcome = on(mac(64, free=10 * 10**9), FLAGSHIP).out
    assert "only 10.0 GB free" in outcome and "HF_HOME" in outcome


def test_a_pair_whose_size_is_unknown_is_not_judged(on):
    outcome = on(mac(64), "qwen3-8b")
    assert outcome.code == 0 and "verdict   unknown: its need can be told once it is fetched" in outcome.out


def test_without_a_pair_a_mac_that_can_is_told_about_the_flagship(on):
    assert f"pair      {FLAGSHIP} at 8192 tokens of context" in on(mac(64)).out


def test_without_a_pair_a_small_mac_is_told_why_it_gets_the_bundled_one(on):
    outcome = on(mac(16)).out
    assert "pair      demo" in outcome and f"note      {FLAGSHIP} needs 158% of what this machine gives" in outcome


def test_the_environment_names_the_pair(on, monkeypatch):
    monkeypatch.setenv("DFLASH2_MODEL", "muse-glimmer-30b")
    assert "pair      muse-glimmer-30b" in on(linux(memory_gib=64)).out


def test_rosetta_is_named_and_nothing_is_judged(on):
    outcome = on(rosetta_mac(), FLAGSHIP)
    assert outcome.code == 1 and "python    3.12.4 (x86_64, translated by Rosetta)" in outcome.out
    assert "mlx       missing; cannot be loaded" in outcome.out
    assert "problem   this Python is an x86-64 program that Rosetta translates" in outcome.out
    assert "verdict   cannot be judged" in outcome.out and "16.87 GiB  in all" in outcome.out


def test_an_intel_mac_is_told_what_is_supported(on):
    outcome = on(intel_mac(), FLAGSHIP)
    assert outcome.code == 1 and "problem   this Mac has an Intel processor" in outcome.out
    assert "Apple silicon (M1 or newer) with macOS 14 or newer, or Linux" in outcome.out


def test_an_mlx_that_does_not_load_is_quoted(on):
    outcome = on(mac(mlx_fails=DLOPEN), FLAGSHIP)
    assert outcome.code == 1 and "problem   MLX cannot be loaded: dlopen(" in outcome.out
    assert "--force-reinstall mlx mlx-metal" in outcome.out


def test_linux_is_told_that_it_is_for_trying_and_of_a_missing_compiler(on):
    outcome = on(linux(memory_gib=64, gxx=None), FLAGSHIP)
    assert outcome.code == 0 and "of the 64.00 GiB that this machine has (26%)" in outcome.out
    assert "note      MLX computes on the CPU here" in outcome.out and "note      there is no g++" in outcome.out


def test_a_pair_on_disk_is_counted_in_its_files(on, stored):
    outcome = on(linux(), stored[0], "--draft", stored[1], "--json")
    document = json.loads(outcome.out)
    size = (stored[0] / "model.safetensors").stat().st_size
    assert outcome.code == 0 and document["ready"] and document["pair"]["verdict"]["word"] == "fits"
    assert size - 20_000 < document["pair"]["need"]["target"] < size
    assert document["pair"]["context"] == 4096 and document["pair"]["states"] == {
        "target": "folder",
        "drafter": "folder",
    }
    assert document["machine"]["device"] == "cpu" and document["pair"]["drafter_bytes"]["4"] > 0


def test_tensors_that_are_never_loaded_are_not_counted(on, pair):
    import mlx.core as mx

    before = json.loads(on(linux(), pair[0], "--json").out)["pair"]["need"]["target"]
    change_tensors(pair[0], {}, **{"vision_tower.proj.weight": mx.zeros((64, 64)), "mtp.fc.weight": mx.zeros((64, 64))})
    assert json.loads(on(linux(), pair[0], "--json").out)["pair"]["need"]["target"] == before


@pytest.mark.parametrize("which", [0, 1])
def test_a_broken_pair_is_a_problem_with_its_file_named(on, pair, which):
    path = pair[which] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    outcome = on(linux(), pair[0], "--draft", pair[1])
    assert outcome.code == 1 and "verdict   unusable" in outcome.out and "the file is cut" in outcome.out


def test_a_drafter_that_knows_less_context_than_the_target_is_noted(on, pair):
    change_config(pair[1], layer_types=["full_attention"] * 2, max_position_embeddings=128)
    outcome = on(linux(), pair[0], "--draft", pair[1])
    assert outcome.code == 0 and "note      the drafter knows 128 tokens of context" in outcome.out


@pytest.mark.parametrize(("context", "word"), [(0, "1 or more"), (-3, "1 or more"), (262145, "1 to 262144")])
def test_a_context_that_cannot_be_is_refused(on, context, word):
    outcome = on(mac(64), FLAGSHIP, f"--context={context}")
    assert outcome.code == 2 and outcome.out == "" and word in outcome.err


def test_a_name_that_can_be_no_model_is_refused(on):
    outcome = on(mac(64), "./nowhere")
    assert outcome.code == 1 and outcome.out == "" and "nowhere" in outcome.err


def test_it_works_where_mlx_cannot_be_imported(tmp_path):
    broken = tmp_path / "mlx"
    broken.mkdir()
    (broken / "__init__.py").write_text("")
    (broken / "core.py").write_text("raise ImportError('dlopen(core.so, 2): Library not loaded: libmlx.dylib')")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "HF_HOME": str(tmp_path / "hub")}
    command = [sys.executable, "-m", "dflash2_mlx", "doctor", FLAGSHIP]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 1 and done.stderr == ""
    assert "Library not loaded" in done.stdout and "16.87 GiB  in all" in done.stdout


def test_a_pair_that_a_cpu_is_slow_for_is_noted_in_the_words_of_the_default(on, monkeypatch):
    from dflash2_mlx.cli import models

    monkeypatch.setattr(models, "probe", linux)
    words = f"MLX computes on the CPU here, which is slow for {FLAGSHIP}"
    assert f"note      {words}" in on(linux(memory_gib=64), FLAGSHIP).out
    assert words in models.choose_model(None)[1]


@pytest.mark.parametrize(("chip", "told"), [("Apple M1 Max", True), ("Apple M2", True), ("Apple M3", False)])
def test_a_chip_that_decodes_weights_for_every_row_is_told_of_mxfp4(on, pair, chip, told):
    for settings in ({"group_size": 64, "bits": 4}, {"group_size": 32, "bits": 4, "mode": "mxfp4"}):
        change_config(pair[0], quantization=settings)
        found = "mxfp4 conversion" in on(mac(32, chip), pair[0], "--no-draft").out
        assert found == (told and "mode" not in settings)


def test_a_folder_without_hashes_is_told_how_to_note_them(on, cli, pair):
    words = f"no hashes of {pair[0]} are noted here: dflash2-mlx verify --record {pair[0]}"
    assert words in on(linux(), pair[0], "--no-draft").out
    cli("verify", "--record", pair[0])
    assert "no hashes" not in on(linux(), pair[0], "--no-draft").out


def test_a_mac_without_a_metal_device_is_not_told_to_install_anything_again(on):
    outcome = on(mac(mlx_fails=RuntimeError("[metal::Device] No Metal device available")))
    assert outcome.code == 1 and "problem   MLX finds no Metal device here" in outcome.out
    assert "--force-reinstall" not in outcome.out
