"""What the server says of itself: at its start, and before anybody has asked for an answer."""

from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.serve import banner
from dflash2_mlx.server.model import Engine, Kept
from dflash2_mlx.server.run import Listening
from dflash2_mlx.server.settings import ServeSettings
from scripted import model


def test_the_budget_of_the_prefix_cache_is_told_from_the_start(session):
    engine = Engine(session, model(session.tokenizer), lambda: Kept(0, 0, 4_000_000_000))
    assert engine.kept.budget_bytes == 4_000_000_000


def test_the_words_for_reasoning_are_told_with_what_they_mean(client, state):
    levels = client.get("/api/status").json()["reasoning_levels"]
    assert levels == dict(state.model().chat.levels) and levels["off"] == "no thinking"


def said(capsys, session, **settings: object) -> str:
    listening = Listening("http://127.0.0.1:8000", ServeSettings(**settings), model(session.tokenizer, context=4096))
    banner(listening, Out())
    return capsys.readouterr().err


def test_the_banner_names_the_page(capsys, session):
    assert "page         http://127.0.0.1:8000/ " in said(capsys, session)


def test_a_context_beyond_the_model_s_is_told(capsys, session):
    assert "context 4096 tokens, the model's most: --max-context 65536 is more" in said(
        capsys, session, max_context=65536
    )
    for most in (None, 4096, 100):
        assert "--max-context" not in said(capsys, session, max_context=most)
