"""The table of known pairs, which of them a name means, and which one answers where none is named."""

from dataclasses import replace

import pytest

from dflash2_mlx.cli import models
from dflash2_mlx.cli.models import choose_model, pair_lines
from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError
from dflash2_mlx.store.pairs import KNOWN_PAIRS, known_pair, target_and_drafter

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


def on_a_mac(monkeypatch, *, room, state):
    monkeypatch.delenv("DFLASH2_MODEL", raising=False)
    monkeypatch.setattr(models, "_is_for_this_machine", lambda _: room)
    monkeypatch.setattr(models, "pair_state", lambda _: state)


@pytest.mark.parametrize(
    ("room", "state", "chosen", "words"),
    [
        (True, "in the cache", "qwen3.8-27b", "qwen3.8-27b answers"),
        (True, "not there", "demo", "dflash2-mlx pull qwen3.8-27b"),
        (False, "in the cache", "demo", "needs Apple silicon"),
    ],
)
def test_the_default_model_depends_on_memory_and_cache_and_is_said(monkeypatch, room, state, chosen, words):
    on_a_mac(monkeypatch, room=room, state=state)
    name, why = choose_model(None)
    assert name == chosen and words in why


def test_the_environment_and_the_option_choose_silently(monkeypatch):
    on_a_mac(monkeypatch, room=True, state="in the cache")
    monkeypatch.setenv("DFLASH2_MODEL", "qwen3-4b")
    assert choose_model(None) == ("qwen3-4b", None) and choose_model("demo") == ("demo", None)


@pytest.mark.parametrize(
    ("device", "gigabytes", "expected"), [("gpu", 12, False), ("gpu", 18, True), ("gpu", 96, True), ("cpu", 256, False)]
)
def test_the_flagship_is_the_default_only_where_metal_has_room_for_it(device, gigabytes, expected):
    machine = replace(models.probe(), device=device, working_set_bytes=gigabytes * 2**30)
    assert models.has_room(machine, FLAGSHIP) is expected
