"""`dflash2-mlx bench` over real pairs, small ones."""

import errno
import importlib
import sys

import pytest

from folders import write_target

QUICK = ("--quick", "--repeats", 1)


@pytest.fixture(scope="module")
def tiny(stored):
    target, drafter = stored
    return ("--model", target, "--draft", drafter)


@pytest.mark.slow
def test_a_run_prints_tables_to_stderr_and_one_document_to_stdout(cli, tmp_path):
    outcome = cli("run", "--model", "demo", *QUICK, "-w", "json-tools", "-b", 8, "--report", tmp_path)
    assert outcome.code == 0, outcome.err
    document = outcome.document
    (group,) = document["groups"]
    assert len(outcome.out.splitlines()) == 1 and group["workload"] == "json-tools"
    drafted, plain = group["methods"]["dflash2"], group["methods"]["plain"]
    assert group["same_text"] and drafted["completion_tokens"] == plain["completion_tokens"]
    assert drafted["tokens_per_round"] > 3 and drafted["candidates"] == 16 and drafted["hit_rate"] > 0.5
    assert sum(drafted["shares"].values()) == pytest.approx(1.0) and plain["shares"]["draft"] == 0.0
    assert drafted["peak_bytes"] > 1_000_000 and len(drafted["acceptance_by_position"]) == 7
    assert "Which workloads gain" in outcome.err and "same" in outcome.err
    assert {"report.html", "report.md", "report.json", "speed.csv"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_a_hopeless_drafter_changes_no_text_and_is_shown_to_accept_nothing(cli, tiny):
    outcome = cli("run", *tiny, *QUICK, "-w", "short-chat", "--thinking", "on", "--length", 24)
    (group,) = outcome.document["groups"]
    assert outcome.code == 0 and group["same_text"] and group["thinking"] == "on"
    assert group["methods"]["dflash2"]["tokens_per_round"] < 1.5 and "measured once" in outcome.err


@pytest.mark.slow
def test_two_drafters_of_one_target_are_compared_in_one_run(cli, tiny, stored, tmp_path):
    import json

    import mlx.core as mx

    old = tmp_path / "dflash1"
    old.mkdir()
    config = json.loads((stored[1] / "config.json").read_text())
    config["architectures"] = ["DFlashDraftModel"]
    config["dflash_config"]["target_layer_ids"] = [0, 2]
    tensors = mx.load(str(stored[1] / "model.safetensors"))
    kept = {k: v for k, v in tensors.items() if "conv" not in k and "selector" not in k}
    kept["fc.weight"] = kept["fc.weight"][:, : 2 * 64]
    mx.save_safetensors(str(old / "model.safetensors"), kept)
    (old / "config.json").write_text(json.dumps(config))
    outcome = cli("run", *tiny, *QUICK, "-w", "chinese", "--thinking", "on", "--length", 16, "--draft-v1", old)
    assert outcome.code == 0, outcome.err
    (group,) = outcome.document["groups"]
    assert set(group["methods"]) == {"plain", "dflash1", "dflash2"} and group["same_text"]
    assert outcome.document["environment"]["older_drafter"]["stored"].endswith("DFlash 1")


@pytest.mark.slow
def test_a_sweep_measures_every_block_size_and_predicts_it(cli):
    outcome = cli("sweep", "--model", "demo", *QUICK, "-w", "short-chat", "--block-sizes", "2,8")
    assert outcome.code == 0, outcome.err
    document = outcome.document
    assert [width["rows"] for width in document["widths"]] == [2, 8] and document["same_text"]
    assert document["best"] in (2, 8) and f"Best block size: {document['best']}" in outcome.err
    narrow, wide = document["widths"]
    assert 1 < narrow["tokens_per_round"] <= 2 < wide["tokens_per_round"]
    costs = wide["rounds"] * (wide["cost"]["verify"] + wide["cost"]["draft"]) + wide["plain_steps"]
    assert wide["predicted"] == pytest.approx((wide["rounds"] * wide["tokens_per_round"] + wide["plain_steps"]) / costs)


@pytest.mark.slow
def test_a_check_of_the_bundled_pair_finds_no_difference(cli):
    outcome = cli("check", "--model", "demo", "--max-tokens", 24, "--context", 300, "--seeds", 1, "-w", "short-chat")
    assert outcome.code == 0, outcome.err
    assert {finding["kind"] for finding in outcome.document["findings"]} == {"same"}


@pytest.mark.slow
def test_a_short_soak_keeps_the_text_stable(cli):
    outcome = cli("soak", "--model", "demo", "--minutes", 0.1)
    assert outcome.code == 0, outcome.err
    assert outcome.document["answers"] and outcome.document["text_changes"] == 0
    assert "Too short to tell" in outcome.err


@pytest.mark.slow
def test_two_real_runs_of_the_same_build_report_no_change(cli, tmp_path):
    """Speeds are left out: whatever else runs beside the tests may really change them between the two."""
    ask = ("run", "--model", "demo", "--quick", "--repeats", 5, "--block-size", 5, "-w", "short-chat", "-w", "chinese")
    paths = []
    for name in ("a.json", "b.json"):
        paths.append(tmp_path / name)
        paths[-1].write_text(cli(*ask).out)
    outcome = cli("compare", *paths)
    assert outcome.code == 0 and outcome.document["compared"] > 10, outcome.err
    assert not [
        change for change in outcome.document["changes"] if change["figure"] in ("tokens per round", "same text")
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--context", "12x"), "'12x' is no length. Give numbers like 512,2k,8k."),
        (("run", "--context", "inf"), "'inf' is no length"),
        (("run", "--context", "512,1e30"), "'1e30' is no length"),
        (("run", "--length", "99999k"), "'99999k' is no length"),
        (("sweep", "--block-sizes", "1"), "--block-sizes 1 is plain decoding, which is always measured"),
        (("check", "--margin", "inf"), "inf is no number"),
        (("soak", "--minutes", "inf"), "inf is no number"),
        (("run", "--report", "/proc/nowhere"), "--report '/proc/nowhere' is no folder to write to"),
        (("compare", "a", "b", "--report", __file__), "is no folder to write to"),
        (("load", "--clients", "1,100k"), "102400 is too many for one process"),
        (("load", "--temperature", "nan"), "temperature is nan"),
        (("load", "-w", "long-summary"), "only long documents"),
        (("run", "--thinking", "maybe"), "--thinking is 'maybe'. Give off, on or both."),
        (("run", "-w", "poetry"), "there is no workload poetry"),
        (("run", "--dataset", "gsm8k", "-w", "maths"), "--dataset excludes --workload"),
        (("run", "--acceptance", "hope"), "Give coupled or rejection"),
        (("run", "--temperature", -1), "temperature is -1.0"),
    ],
)
def test_what_a_user_can_mistype_is_one_line(cli, arguments, words):
    command, *rest = arguments
    outcome = cli(command, *(("--model", "demo") if command != "compare" else ()), *rest)
    assert outcome.code == 2 and words in outcome.err and len(outcome.err.splitlines()) == 1, outcome.err


@pytest.mark.parametrize("wide", [("run", "--block-size", 9), ("sweep", "--block-sizes", "2,9")])
def test_a_block_wider_than_the_drafter_was_trained_with_is_refused(cli, tiny, wide):
    command, *rest = wide
    outcome = cli(command, *tiny, "--thinking", "on", *rest) if command == "run" else cli(command, *tiny, *rest)
    assert outcome.code == 2 and "block size 9 is above the 8 rows" in outcome.err


def test_a_prompt_beyond_the_context_is_refused_before_anything_is_measured(cli):
    outcome = cli("run", "--model", "demo", *QUICK, "-w", "short-chat", "--context", "512,40k")
    assert outcome.code == 2 and "40960 prompt tokens are more than the 32768" in outcome.err, outcome.err
    assert len(outcome.err.splitlines()) == 1
    outcome = cli("check", "--model", "demo", "--context", "32768")
    assert outcome.code == 2 and "32768 prompt tokens are more than" in outcome.err


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_workload_beyond_the_context_is_refused_before_anything_is_measured(cli, stored, tmp_path, command):
    short = write_target(tmp_path, max_position_embeddings=1024)
    outcome = cli(command, "--model", short, "--draft", stored[1], "-w", "long-summary")
    assert outcome.code == 2 and "2000 prompt tokens are more than the 1024" in outcome.err, outcome.err


class InterruptedAt:
    """Raises as Ctrl-C does when it is called for the `number`-th time."""

    def __init__(self, monkeypatch, place, number):
        self.count, self.number = 0, number
        module, _, name = place.rpartition(".")
        self.inner = getattr(sys.modules.get(module) or importlib.import_module(module), name)
        monkeypatch.setattr(place, self)

    def __call__(self, *args, **settings):
        self.count += 1
        if self.count == self.number:
            raise KeyboardInterrupt
        return self.inner(*args, **settings)


INTERRUPTED = {
    "run": ("dflash2_mlx.bench.run.run_group", 2, (*QUICK, "-w", "short-chat", "-w", "chinese")),
    "sweep": (
        "dflash2_mlx.bench.sweep.take_passes",
        2,
        (*QUICK, "-w", "short-chat", "-w", "chinese", "--block-sizes", 5),
    ),
    "check": ("dflash2_mlx.bench.check.measure", 9, ("-w", "short-chat", "--max-tokens", 4)),
    "soak": ("dflash2_mlx.memory.machine.memory_in_use", 3, ("--minutes", 5)),
}


@pytest.mark.parametrize(
    "command", ["check", *(pytest.param(c, marks=pytest.mark.slow) for c in ("run", "sweep", "soak"))]
)
def test_ctrl_c_shows_what_was_measured_so_far(cli, monkeypatch, tmp_path, command):
    place, number, arguments = INTERRUPTED[command]
    InterruptedAt(monkeypatch, place, number)
    outcome = cli(command, "--model", "demo", *arguments, "--report", tmp_path)
    assert outcome.code == 130 and outcome.document["complete"] is False, outcome.err
    assert "Interrupted" in outcome.err and "Traceback" not in outcome.err
    assert (tmp_path / "report.html").exists()


def test_ctrl_c_before_anything_was_measured_leaves_nothing_behind(cli, monkeypatch):
    InterruptedAt(monkeypatch, "dflash2_mlx.bench.run.run_group", 1)
    outcome = cli("run", "--model", "demo", *QUICK, "-w", "short-chat")
    assert outcome.code == 130 and outcome.out == ""


def test_a_document_is_printed_even_where_the_report_cannot_be_written(cli, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "report.json")

    monkeypatch.setattr("dflash2_mlx.bench.writers.write_report", full)
    outcome = cli("soak", "--model", "demo", "--minutes", 0.01, "--report", tmp_path)
    assert outcome.code == 1 and "answers" in outcome.document and "No space left on device" in outcome.err


def test_a_target_without_a_drafter_has_nothing_to_compare(cli, stored):
    outcome = cli("run", "--model", stored[0])
    assert outcome.code == 2 and "there is nothing to compare" in outcome.err
