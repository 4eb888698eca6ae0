"""`dflash2-mlx chat`: a conversation in the terminal. MLX is imported only once the parameters are checked."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING

from dflash2_mlx.cli import options
from dflash2_mlx.cli.inputs import read_block_size, refuse_broken_text, sampling_asked
from dflash2_mlx.cli.models import pair_lines
from dflash2_mlx.cli.ready import chosen_model, get_ready
from dflash2_mlx.cli.report import stat_lines
from dflash2_mlx.config import EngineParams, LoadParams
from dflash2_mlx.errors import TemplateError, UsageError
from dflash2_mlx.memory.machine import probe
from dflash2_mlx.store.opening import OpenedPair
from dflash2_mlx.store.pairs import KNOWN_PAIRS
from dflash2_mlx.text.printable import printable

if TYPE_CHECKING:
    from dflash2_mlx.chat.chat import Opened
    from dflash2_mlx.chat.conversation import Conversation
    from dflash2_mlx.chat.keys import Keyboard
    from dflash2_mlx.chat.look import Look
    from dflash2_mlx.chat.reader import Reader
    from dflash2_mlx.chat.stage import Stage


def chat(
    name: options.ChatModel = None,
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
    go_on: options.Continue = False,
    reasoning: options.Reasoning = None,
    no_color: options.NoColor = False,
    no_history: options.NoHistory = False,
) -> None:
    """Chat in the terminal: /help lists the commands, Esc stops an answer, Ctrl-D leaves.

    Without a terminal every line of stdin is a turn, and stdout has the answers alone.
    """
    asked = sampling_asked(locals())
    engine = EngineParams(max_tokens, read_block_size(block_size), acceptance)  # type: ignore[arg-type]
    refuse_broken_text("--system", system)
    if name and model:
        raise UsageError(f"the model is given twice, as {name!r} and as --model {model}. Give one of them.")
    load = LoadParams(chosen_model(name or model), draft, draft_bits, draft_revision, not no_draft, require_draft)
    opened = get_ready(load)

    from dflash2_mlx.chat.keys import Keyboard
    from dflash2_mlx.chat.look import look_of

    look = look_of(sys.stdin, sys.stdout, os.environ, colour=not no_color)
    start = _Start(opened, asked, engine, look, Keyboard(live=look.live))
    sys.exit(_chat(start, _conversation(system, go_on=go_on), reasoning, remember=not no_history))


@dataclass(frozen=True, slots=True)
class _Start:
    """What the user asked for, and where. opened: the first pair."""

    opened: OpenedPair
    asked: Mapping[str, object]
    engine: EngineParams
    look: "Look"
    keyboard: "Keyboard"


def _conversation(system: str | None, *, go_on: bool) -> "Conversation":
    """A new conversation, or the last one. Raises: UsageError where there is none."""
    from dflash2_mlx.chat.conversation import Conversation
    from dflash2_mlx.chat.history import last_chat_path
    from dflash2_mlx.chat.storage import load

    if not go_on:
        return Conversation(system)
    path = last_chat_path(os.environ)
    if not path.exists():
        raise UsageError(f"there is no last conversation to go on with: {path} does not exist. Leave --continue out.")
    conversation = load(path)
    conversation.system = system or conversation.system
    return conversation


def _open(start: _Start, opened: OpenedPair) -> "Opened":
    """A session over the pair, and how it samples. Raises: LoadError, TemplateError where it cannot chat."""
    from dflash2_mlx.loading.load import load_opened
    from dflash2_mlx.session.session import Session, block_size_for, default_cache_bytes, default_sampling

    model = opened.params.model
    with start.keyboard.loading():
        if start.look.live:
            print(printable(f"loading {model} ..."), end="", flush=True)
        try:
            pair = load_opened(opened)
        finally:
            if start.look.live:
                print("\r\x1b[K", end="", flush=True)
    if not pair.tokenizer.has_chat_template:
        raise TemplateError(
            f"{model} has no chat template, so it cannot chat. Let it go on with a text: "
            f'dflash2-mlx generate --model {model} --raw "Once upon a time"'
        )
    opened.params.check_block(block_size_for(pair, start.engine.block_size).rows)
    sampling = replace(default_sampling(pair), **start.asked)  # type: ignore[arg-type]
    session = Session(pair, cache_bytes=default_cache_bytes(pair))
    session.open()
    return session, sampling


def _chat(start: _Start, conversation: "Conversation", reasoning: str | None, *, remember: bool) -> int:
    """Chat over the pair; the exit code. Nothing here holds the session, so that another can take its place."""
    from dflash2_mlx.chat.chat import Chat, Program
    from dflash2_mlx.chat.history import keep, last_chat_path
    from dflash2_mlx.chat.loop import Loop
    from dflash2_mlx.chat.settings import ChatSettings

    def prepare(name: str) -> Callable[[], "Opened"]:
        opened = get_ready(replace(start.opened.params, model=name, draft=None, draft_revision=None))
        return lambda: _open(start, opened)

    def keep_last(conversation: "Conversation", model: str) -> None:
        if remember and stage.interactive:
            keep(conversation, last_chat_path(os.environ), model)

    session, sampling = _open(start, start.opened)
    stage, reader = _stage(start, remember=remember)
    settings = ChatSettings(sampling, start.engine, reasoning)
    chat = Chat(session, settings, stage, start.keyboard, Program(stat_lines, _known_pairs, prepare, keep_last))
    del session
    chat.conversation = conversation
    chat.check_reasoning(reasoning)
    chat.greet()
    stage.gap()
    try:
        with start.keyboard.chatting():
            return Loop(chat).run(reader)
    finally:
        chat.session.close()


def _known_pairs() -> list[str]:
    machine = probe()
    return [line for known in KNOWN_PAIRS for line in pair_lines(known, machine)]


def _stage(start: _Start, *, remember: bool) -> tuple["Stage", "Reader"]:
    """Where to show and where to read."""
    from dflash2_mlx.chat.reader import LineReader
    from dflash2_mlx.chat.stage import PlainStage

    if start.look.live:
        return _terminal(start, remember=remember)
    interactive = sys.stdin is not None and sys.stdin.isatty()
    source = BytesIO() if sys.stdin is None else sys.stdin.buffer  # None: closed by the caller
    stage = PlainStage(sys.stdout, sys.stderr, interactive=interactive)
    return stage, LineReader(source, sys.stderr, "> ") if interactive else LineReader(source)


def _terminal(start: _Start, *, remember: bool) -> tuple["Stage", "Reader"]:
    from prompt_toolkit.history import InMemoryHistory

    from dflash2_mlx.chat.commands import completion_words, helps
    from dflash2_mlx.chat.history import TurnHistory, history_path
    from dflash2_mlx.chat.reader import CommandCompleter, TerminalReader
    from dflash2_mlx.chat.screen import Screen
    from dflash2_mlx.chat.stage import TerminalStage

    stage = TerminalStage(Screen(sys.stdout, start.look))
    history = TurnHistory(history_path(os.environ), stage.fail) if remember else InMemoryHistory()
    completer = CommandCompleter(helps(), completion_words)
    return stage, TerminalReader(start.look, history, completer, start.keyboard.typed)
