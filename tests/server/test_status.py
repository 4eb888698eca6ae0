"""What `/api/status` says before anybody has asked for an answer."""

from dflash2_mlx.server.served import Engine, Kept
from scripted import served


def test_the_budget_of_the_prefix_cache_is_told_from_the_start(session):
    engine = Engine(session, served(session.tokenizer), lambda: Kept(0, 0, 4_000_000_000))
    assert engine.kept.budget_bytes == 4_000_000_000
