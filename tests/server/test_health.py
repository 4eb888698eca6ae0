"""What `/api/status` says before anybody has asked for an answer."""

from dflash2_mlx.server.model import Engine, Kept
from scripted import model


def test_the_budget_of_the_prefix_cache_is_told_from_the_start(session):
    engine = Engine(session, model(session.tokenizer), lambda: Kept(0, 0, 4_000_000_000))
    assert engine.kept.budget_bytes == 4_000_000_000


def test_the_words_for_reasoning_are_told_with_what_they_mean(client, state):
    levels = client.get("/api/status").json()["reasoning_levels"]
    assert levels == dict(state.model().chat.levels) and levels["off"] == "no thinking"
