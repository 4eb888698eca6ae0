"""`dflash2-mlx chat`: a conversation in the terminal. MLX is imported only once the parameters are checked."""

import os
import sys
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING

from dflash2_mlx.cli import options
from dflash2_mlx.cli.inputs import given, read_block_size, refuse_broken_text
from dflash2_mlx.cli.models import pair_lines
from dflash2_mlx.cli.ready import chosen_model, get_ready
from dflash2_mlx.cli.report import stat_lines
from dflash2_mlx.config import EngineParams, LoadParams, SamplingParams
from dflash2_mlx.errors import TemplateError
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.store.opening import OpenedPair
from dflash2_mlx.store.pairs import KNOWN_PAIRS

if TYPE_CHECKING:
    from dflash2_mlx.chat.keys import Keyboard
    from dflash2_mlx.chat.look import Look
    from dflash2_mlx.chat.reader import Reader
    from dflash2_mlx.chat.settings import ChatSettings
    from dflash2_mlx.chat.stage import Stage
    from dflash2_mlx.loading.pair import Pair


def chat(
    model: options.Model = None,
    draft: options.Draft = None,
    draft_revision: options.DraftRevision = None,
    draft_bits: options.DraftBits = None,
    block_size: options.BlockSize = "auto",
    require_draft: options.RequireDraft = False,
    no_draft: options.NoDraft = False,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    repetition_penalty: options.RepetitionPenalty = None,
    presence_penalty: options.PresencePenalty = None,
    frequency_penalty: options.FrequencyPenalty = None,
    acceptance: options.Acceptance = "coupled",
    system: options.System = None,
    reasoning: options.Reasoning = None,
    no_color: options.NoColor = False,
    no_history: options.NoHistory = False,
) -> None:
    """Chat in the terminal: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.

    Without a terminal every line of stdin is a turn, and stdout has the answers alone.
    """
    asked = given(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        repetition_penalty=repetition_penalty,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
    )
    SamplingParams(**asked)  # type: ignore[arg-type]  # refuses bad values before anything is loaded
    engine = EngineParams(max_tokens, read_block_size(block_size), acceptance)  # type: ignore[arg-type]
    refuse_broken_text("--system", system)
    load = LoadParams(chosen_model(model), draft, draft_bits, draft_revision, not no_draft, require_draft)
    opened = get_ready(load)

    from dflash2_mlx.chat.keys import Keyboard
    from dflash2_mlx.chat.look import look_of
    from dflash2_mlx.chat.settings import ChatSettings

    look = look_of(sys.stdin, sys.stdout, os.environ, colour=not no_color)
    keyboard = Keyboard(live=look.live)
    with keyboard.loading():
        pair = _load(opened, look)
    from dflash2_mlx.session.session import block_size_for, default_sampling

    load.check_block(block_size_for(pair, engine.block_size).rows)
    settings = ChatSettings(replace(default_sampling(pair), **asked), engine, reasoning)  # type: ignore[arg-type]
    with keyboard.chatting():
        code = _chat(pair, settings, system, (look, keyboard), remember=not no_history)
    sys.exit(code)


def _load(opened: OpenedPair, look: "Look") -> "Pair":
    """The pair, with a line on the terminal while it loads. Raises: LoadError, TemplateError where there is none."""
    from dflash2_mlx.loading.load import load_opened

    model = opened.params.model
    if look.live:
        print(f"loading {model} ...", end="", flush=True)
    try:
        pair = load_opened(opened)
    finally:
        if look.live:
            print("\r\x1b[K", end="", flush=True)
    if not pair.tokenizer.has_chat_template:
        raise TemplateError(
            f"{model} has no chat template, so it cannot chat. Let it go on with a text: "
            f'dflash2-mlx generate --model {model} --raw "Once upon a time"'
        )
    return pair


def _chat(
    pair: "Pair", settings: "ChatSettings", system: str | None, place: tuple["Look", "Keyboard"], *, remember: bool
) -> int:
    """Chat over the loaded pair; the exit code."""
    from dflash2_mlx.chat.chat import Chat, Reports
    from dflash2_mlx.chat.conversation import Conversation
    from dflash2_mlx.chat.loop import Loop
    from dflash2_mlx.session.session import Session, default_cache_bytes

    look, keyboard = place
    stage, reader = _stage(look, remember=remember)
    reports = Reports(stat_lines, _known_pairs)
    with Session(pair, cache_bytes=default_cache_bytes(pair)) as session:
        chat = Chat(session, settings, stage, keyboard, reports, Conversation(system))
        chat.check_reasoning(settings.reasoning)
        chat.greet()
        return Loop(chat).run(reader)


def _known_pairs() -> list[str]:
    machine = probe()
    return [line for known in KNOWN_PAIRS for line in pair_lines(known, machine)]


def _stage(look: "Look", *, remember: bool) -> tuple["Stage", "Reader"]:
    """Where to show and where to read."""
    from dflash2_mlx.chat.reader import LineReader
    from dflash2_mlx.chat.stage import PlainStage

    if look.live:
        return _terminal(look, remember=remember)
    interactive = sys.stdin is not None and sys.stdin.isatty()
    source = BytesIO() if sys.stdin is None else sys.stdin.buffer  # None: closed by the caller
    stage = PlainStage(sys.stdout, sys.stderr, interactive=interactive)
    return stage, LineReader(source, sys.stderr, "> ") if interactive else LineReader(source)


def _terminal(look: "Look", *, remember: bool) -> tuple["Stage", "Reader"]:
    from prompt_toolkit.history import InMemoryHistory

    from dflash2_mlx.chat.commands import completion_words, helps
    from dflash2_mlx.chat.history import TurnHistory, history_path
    from dflash2_mlx.chat.reader import CommandCompleter, TerminalReader
    from dflash2_mlx.chat.screen import Screen
    from dflash2_mlx.chat.stage import TerminalStage

    stage = TerminalStage(Screen(sys.stdout, look))
    history = TurnHistory(history_path(os.environ), stage.fail) if remember else InMemoryHistory()
    return stage, TerminalReader(look, history, CommandCompleter(helps(), completion_words))
