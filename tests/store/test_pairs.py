"""The table of known pairs, which of them a name means, and which one answers where none is named."""

import pytest

from dflash2_mlx.cli import models
from dflash2_mlx.cli.models import choose_model, pair_lines
from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.pairs import KNOWN_PAIRS, known_pair, target_and_drafter
from machines import DLOPEN, linux, mac

FLAGSHIP = known_pair("qwen3.8-27b")


def test_every_alias_names_its_own_pair_in_any_case():
    assert len({pair.alias for pair in KNOWN_PAIRS}) == len(KNOWN_PAIRS)
    assert all(known_pair(pair.alias.upper()) is pair for pair in KNOWN_PAIRS)


def test_the_published_revisions_are_pinned_and_no_other_is_made_up():
    pinned = {name for pair in KNOWN_PAIRS for name in (pair.target, pair.drafter) if "@" in name}
    assert pinned == {FLAGSHIP.target, FLAGSHIP.drafter}
    assert all(len(name.partition("@")[2]) == 40 for name in pinned)


def test_published_sizes_and_block_sizes():
    assert FLAGSHIP.drafter_bytes == 3_848_817_896 and FLAGSHIP.block_size == 8
    assert {known_pair(f"muse-glimmer-30b{end}").block_size for end in ("", "-8bit", "-assistant")} == {16}


@pytest.mark.parametrize(
    "name", ["qwen3.8-27b", "mlx-community/Qwen3.8-27B-4bit", "mlx-community/Qwen3.8-27B-4bit@other"]
)
def test_a_known_target_has_its_drafter_however_it_is_named(name):
    assert target_and_drafter(LoadParams(name))[1:] == (FLAGSHIP.drafter, None)


def test_a_revision_that_the_user_gives_wins_over_the_pinned_one():
    name = "mlx-community/Qwen3.8-27B-4bit@other"
    assert target_and_drafter(LoadParams(name))[0] == name


def test_an_alias_as_drafter_means_its_drafter():
    names = target_and_drafter(LoadParams("./mine", "muse-glimmer-30b-assistant"))
    assert names[:2] == ("./mine", "meta-models/Muse-Glimmer-30B-assistant")


def test_an_unknown_target_has_no_drafter_and_says_why():
    assert target_and_drafter(LoadParams("./mine"))[1:] == (
        None,
        "no drafter is known for ./mine; give one with --draft",
    )
    with pytest.raises(LoadError, match="--draft"):
        target_and_drafter(LoadParams("./mine", require_draft=True))


def test_the_list_says_which_repositories_are_not_pinned():
    assert "(50307d4)" in "\n".join(pair_lines(FLAGSHIP, models.probe()))
    assert "(newest)" in "\n".join(pair_lines(known_pair("qwen3-4b"), models.probe()))


@pytest.fixture
def on(monkeypatch, cache):
    """Lets the default be chosen on a machine, the flagship's files in the cache or not."""

    def choose(machine, *, there=False):
        monkeypatch.delenv("DFLASH2_MODEL", raising=False)
        monkeypatch.setattr(models, "probe", lambda: machine)
        if there:
            monkeypatch.setattr("dflash2_mlx.store.opening.OpenedPair.missing", ())
        return choose_model(None)

    return choose


@pytest.mark.parametrize(
    ("machine", "there", "chosen", "words"),
    [
        (mac(64), True, "qwen3.8-27b", "qwen3.8-27b answers"),
        (mac(64), False, "demo", "dflash2-mlx pull qwen3.8-27b"),
        (mac(16), True, "demo", "qwen3.8-27b needs 158% of what this machine gives"),
        (linux(memory_gib=64), True, "demo", "computes on the CPU here, which is slow for qwen3.8-27b"),
        (mac(64, mlx_fails=DLOPEN), True, "demo", "computes on the CPU"),
    ],
)
def test_the_default_model_depends_on_device_memory_and_cache_and_is_said(on, machine, there, chosen, words):
    name, why = on(machine, there=there)
    assert name == chosen and words in why


@pytest.mark.parametrize("machine", [mac(16), mac(64), linux(memory_gib=64)])
def test_doctor_and_pull_mean_the_same_default_and_say_the_same_of_it(cli, on, hub, monkeypatch, machine):
    on(machine)
    for place in ("cli.doctor", "cli.pull", "memory.verdict"):
        monkeypatch.setattr(f"dflash2_mlx.{place}.probe", lambda: machine)
    doctor, pull = cli("doctor"), cli("pull")
    pair = next(line.split()[1] for line in doctor.out.splitlines() if line.startswith("pair "))
    notes = [line.removeprefix("note").strip() for line in doctor.out.splitlines() if line.startswith("note ")]
    fetched = "mlx-community/Qwen3.8-27B-4bit" in pull.err
    assert fetched == (pair == "qwen3.8-27b") and (fetched or notes[-1] in pull.err)


def test_the_environment_and_the_option_choose_silently(on, monkeypatch):
    on(mac(64), there=True)
    monkeypatch.setenv("DFLASH2_MODEL", "qwen3-4b")
    assert choose_model(None) == ("qwen3-4b", None) and choose_model("demo") == ("demo", None)


@pytest.mark.parametrize(("memory", "expected"), [(16, False), (24, False), (32, True), (128, True)])
def test_the_flagship_is_the_default_only_where_metal_has_memory_for_it(on, memory, expected):
    assert (on(mac(memory), there=True)[0] == "qwen3.8-27b") is expected
