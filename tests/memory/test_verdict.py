"""Whether a pair has room, asked before its weights are read: what is refused, warned of, or not judged."""

import pytest

from dflash2_mlx.cli.ready import expected_context
from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.memory.verdict import check_memory, examine
from dflash2_mlx.store.opening import open_pair
from folders import change_tensors, write_drafter, write_target
from machines import DLOPEN, linux, mac

FLAGSHIP = LoadParams("qwen3.8-27b")


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DFLASH2_SKIP_FIT", raising=False)


@pytest.fixture
def on(monkeypatch):
    """Asks for room on a machine."""

    def ask(machine, params=FLAGSHIP, context=None):
        monkeypatch.setattr("dflash2_mlx.memory.verdict.probe", lambda: machine)
        return check_memory(open_pair(params), context)

    return ask


def test_a_pair_that_fits_is_not_talked_about(on):
    assert on(mac(64)) is None and on(linux(memory_gib=64)) is None


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (mac(16), "16.87 GiB of the 10.67 GiB that Metal recommends (158%) at 8192 tokens"),
        (mac(24), "16.87 GiB of the 16.00 GiB that Metal recommends (105%) at 8192 tokens"),
        (linux(memory_gib=16), "16.87 GiB of the 16.00 GiB that this machine has (105%) at 8192 tokens"),
    ],
)
def test_a_pair_that_does_not_fit_is_refused_with_what_to_do(on, machine, told):
    with pytest.raises(LoadError) as error:
        on(machine)
    assert told in str(error.value) and "doctor qwen3.8-27b" in str(error.value)
    assert "DFLASH2_SKIP_FIT=1 loads it all the same" in str(error.value)


def test_the_drafter_is_part_of_the_need(on):
    assert on(mac(24), LoadParams("qwen3.8-27b", speculate=False), 2048).startswith("qwen3.8-27b is tight here")
    with pytest.raises(LoadError, match="--no-draft"):
        on(mac(24), context=2048)


def test_a_tight_pair_is_warned_of_on_one_line(on):
    warning = on(mac(32), context=40_000)
    assert "tight here: 19.35 GiB of the 21.33 GiB" in warning and "Close other programs, or" in warning
    assert "\n" not in warning


def test_a_short_answer_may_run_where_a_long_one_may_not(on):
    assert "tight" in on(mac(24), context=expected_context("Who are you?", 200))
    with pytest.raises(LoadError, match="at most 768 tokens"):
        on(mac(24), context=expected_context("Who are you?", None))


def test_no_more_context_is_counted_than_the_target_holds(on):
    assert on(mac(128), context=10**9) is None


def test_the_override_is_honoured(on, monkeypatch):
    monkeypatch.setenv("DFLASH2_SKIP_FIT", "1")
    assert on(mac(16)) is None


@pytest.mark.parametrize("name", ["qwen3-8b", "owner/unknown"])
def test_a_need_that_is_not_known_is_not_judged(on, name):
    assert on(mac(16), LoadParams(name)) is None


def test_a_limit_that_is_not_known_is_not_judged(on):
    assert on(mac(16, mlx_fails=DLOPEN)) is None


def test_the_files_of_a_pair_on_disk_decide(on, tmp_path):
    target, drafter = write_target(tmp_path / "target"), write_drafter(tmp_path / "drafter")
    assert on(linux(), LoadParams(str(target), str(drafter))) is None
    path = drafter / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert on(linux(), LoadParams(str(target), str(drafter))) is None  # loading says what is wrong with it


def test_loading_from_python_asks_for_room_too(monkeypatch):
    from dflash2_mlx import load

    monkeypatch.setattr("dflash2_mlx.memory.verdict.probe", lambda: mac(16))
    with pytest.raises(LoadError, match="does not fit this machine"):
        load("qwen3.8-27b")


def test_the_need_of_the_bundled_drafter_is_what_its_file_holds():
    examined = examine(open_pair(LoadParams("demo")), None, probe())
    from dflash2_mlx.loading.load import load_pair

    assert examined.need.target + examined.need.drafter == load_pair(LoadParams("demo")).weight_bytes


def test_a_draft_revision_is_looked_for_at_that_revision(tmp_path):
    target = write_target(tmp_path / "target")
    change_tensors(target, {})
    opened = open_pair(LoadParams(str(target), "z-lab/x", draft_revision="v1"))
    assert opened.drafter and opened.drafter.name == "z-lab/x@v1"


@pytest.mark.parametrize(("share", "wired"), [(2.0, True), (1.02, False), (0.5, False)])
def test_weights_are_wired_up_to_what_metal_recommends_and_never_above(monkeypatch, share, wired):
    from dflash2_mlx.loading.load import load_pair
    from dflash2_mlx.session.session import wired_memory

    pair, limits = load_pair(LoadParams("demo")), []
    recommended = int(pair.weight_bytes * share)
    monkeypatch.setattr("mlx.core.metal.is_available", lambda: True)
    monkeypatch.setattr("mlx.core.device_info", lambda *_: {"max_recommended_working_set_size": recommended})
    monkeypatch.setattr("mlx.core.set_wired_limit", lambda limit: limits.append(limit) or 0)
    with wired_memory(pair):
        assert limits == ([recommended] if wired else [])
    assert limits == ([recommended, 0] if wired else [])
