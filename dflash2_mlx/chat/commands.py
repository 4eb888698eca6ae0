"""What can be typed behind a slash: one small function a command. Knows the chat it changes, no terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from dflash2_mlx.chat import clipboard, storage
from dflash2_mlx.chat.chat import Chat
from dflash2_mlx.chat.conversation import excerpt
from dflash2_mlx.chat.settings import NAMES
from dflash2_mlx.errors import UsageError


@dataclass(frozen=True, slots=True)
class Command:
    """usage: what may follow the name. words: what completes it; None for a file name. group: where help lists it."""

    usage: str
    help: str
    run: Callable[[Chat, str], None]
    words: Sequence[str] | None = ()
    group: str = "conversation"


def run_command(chat: Chat, line: str) -> None:
    """Run the command that `line` is. Raises: UsageError for an unknown one, and what the command raises."""
    name, _, argument = line.strip().partition(" ")
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        near = get_close_matches(name, COMMANDS, n=1, cutoff=0.7)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"there is no command {name}.{meant} /help lists them; // sends a message with a slash.")
    argument = argument.strip()
    if argument and not command.usage:
        raise UsageError(f"{name} takes nothing behind it, not {argument!r}.")
    command.run(chat, argument)


def show_help(chat: Chat, argument: str) -> None:
    """All commands, and the keys."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, command in COMMANDS.items():
        groups.setdefault(command.group, []).append((f"{name} {command.usage}".strip(), command.help))
    chat.stage.describe({**groups, "keys": KEYS})


def clear(chat: Chat, argument: str) -> None:
    chat.stage.say(f"Forgotten: {chat.conversation.length}. The system message and the settings stay.")
    chat.conversation.turns.clear()
    chat.attached.clear()
    chat.file = None


def retry(chat: Chat, argument: str) -> None:
    sampling = chat.settings.sampling
    _ = chat.conversation.last
    if sampling.temperature == 0:
        chat.stage.say("The temperature is 0, so the answer will be the same. /set temperature=0.7 changes that.")
    elif sampling.seed is not None:
        chat.stage.say("The seed is fixed, so the answer will be the same. /seed off changes that.")
    chat.retry()


def undo(chat: Chat, argument: str) -> None:
    turn = chat.conversation.undo()
    chat.stage.say(f"Taken back: {excerpt(turn.question)} ({chat.conversation.length} left)")


def edit(chat: Chat, argument: str) -> None:
    if not chat.stage.edits:
        raise UsageError("there is no line editor here, so no question can be edited. /undo takes the turn back.")
    turn = chat.conversation.undo()
    chat.prefill = turn.question
    chat.stage.say("The last turn is taken back, and its question is in the prompt.")


def drop(chat: Chat, argument: str) -> None:
    chat.conversation.drop(whole(argument or "1", "/drop"))
    chat.stage.say(f"The conversation begins later now: {chat.conversation.length} left.")


def system(chat: Chat, argument: str) -> None:
    if argument:
        chat.conversation.system = None if argument == "off" else argument
    current = chat.conversation.system
    chat.stage.say("There is no system message." if current is None else f"System message: {current}")


def set_values(chat: Chat, argument: str) -> None:
    chat.settings.set(argument)
    chat.stage.say(chat.settings.lines())


def seed(chat: Chat, argument: str) -> None:
    value = None if argument == "off" else whole(argument, "/seed")
    chat.settings.sampling = replace(chat.settings.sampling, seed=value)
    chat.stage.say("A new seed is drawn for every answer." if value is None else f"Every answer has seed {value}.")


def block(chat: Chat, argument: str) -> None:
    rows = None if argument == "auto" else whole(argument, "/block")
    engine = replace(chat.settings.engine, block_size=rows)
    chat.stage.say(chat.check_block(rows))
    chat.settings.engine = engine


def draft(chat: Chat, argument: str) -> None:
    if argument not in ("on", "off"):
        raise UsageError(f"/draft takes on or off, not {argument!r}.")
    block(chat, "auto" if argument == "on" else "1")


def stats(chat: Chat, argument: str) -> None:
    if chat.last is None:
        raise UsageError("there are no numbers yet: no answer came to its end.")
    chat.stage.say("\n".join(chat.program.stats(chat.last.summary)))


def tokens(chat: Chat, argument: str) -> None:
    used = chat.prompt_tokens()
    chat.stage.say(f"{chat.conversation.length}, {used} tokens; {max(0, chat.limit - used)} of {chat.limit} are left.")


def think(chat: Chat, argument: str) -> None:
    settings, meanings = chat.settings, chat.session.pair.chat.levels
    levels = ", ".join(word for word, meaning in meanings.items() if word == "off" or word == meaning)
    if argument in ("show", "hide"):
        settings.thinking = argument == "show"
        last = chat.conversation.turns[-1].reasoning if chat.conversation.turns else ""
        if settings.thinking and last:
            chat.stage.say(last)
    elif argument:
        level = None if argument == "default" else argument
        chat.check_reasoning(level)
        settings.reasoning = level
    shown = "shown" if settings.thinking else "hidden"
    level = settings.reasoning or "the model's default"
    choice = f" Levels: default, {levels}." if levels else ""
    chat.stage.say(f"Thinking is {shown}; how much: {level}.{choice}")


def accepted(chat: Chat, argument: str) -> None:
    settings, mark = chat.settings, chat.stage.accepted_mark
    if mark is None:
        raise UsageError("tokens can only be marked on a terminal that shows styles.")
    settings.accepted = not settings.accepted
    if settings.accepted:
        chat.stage.say(f"Answers are shown as raw text now. {mark}: drafted and accepted. Plain: the target's own.")
    else:
        chat.stage.say("Answers are shown as Markdown again.")


def save(chat: Chat, argument: str) -> None:
    _ = chat.conversation.last
    path = chat.file if chat.file and not argument else storage.path_of(argument)
    own = chat.file is not None and path.resolve() == chat.file.resolve()
    storage.save(chat.conversation, path, chat.session.pair.model_name, replace=own)
    chat.file = path
    chat.stage.say(f"Saved {chat.conversation.length} to {path}.")


def load(chat: Chat, argument: str) -> None:
    path = storage.path_of(argument)
    loaded = storage.load(path)
    replaced = f", in place of {chat.conversation.length}" if chat.conversation.turns else ""
    chat.conversation, chat.file = loaded, path
    chat.stage.say(f"Loaded {loaded.length}{replaced}.")


def export(chat: Chat, argument: str) -> None:
    _ = chat.conversation.last
    path = storage.path_of(argument)
    storage.export(chat.conversation, path)
    chat.stage.say(f"Exported to {path}.")


def attach(chat: Chat, argument: str) -> None:
    path = storage.path_of(argument)
    text = storage.read_text(path)
    chat.attached.append(storage.quoted(path, text))
    chat.stage.say(f"{argument} ({len(text)} characters) goes in front of your next message.")


def copy(chat: Chat, argument: str) -> None:
    if argument not in ("", "code"):
        raise UsageError(f"/copy takes nothing, or code for the last code block, not {argument!r}.")
    text = chat.conversation.last.answer
    if argument:
        text = clipboard.last_code(text)
    ways = clipboard.copy(text, chat.stage.control)
    chat.stage.say(f"{len(text)} characters to the clipboard, by {' and '.join(ways)}.")


def models(chat: Chat, argument: str) -> None:
    chat.stage.say("\n".join(chat.program.models()))


def model(chat: Chat, argument: str) -> None:
    if argument:
        chat.switch(argument)
    else:
        chat.greet()


def leave(chat: Chat, argument: str) -> None:
    chat.over = True


def whole(text: str, name: str) -> int:
    """A whole number. Raises: UsageError for anything else."""
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name} takes a whole number, not {text!r}. /help shows what it takes.") from None


def helps() -> dict[str, str]:
    """Command -> what it does."""
    return {name: command.help for name, command in COMMANDS.items()}


def completion_words(name: str) -> Sequence[str] | None:
    """The words that may follow a command; None for a file name."""
    command = COMMANDS.get(ALIASES.get(name, name))
    return command.words if command else ()


_SET = [f"{name}=" for name in NAMES]
_LEVELS = ("show", "hide", "default", "off", "low", "medium", "xhigh")
_ANSWERS, _FILES, _PROGRAM = "answers", "files", "program"
COMMANDS: Mapping[str, Command] = {
    "/clear": Command("", "forget the conversation", clear),
    "/retry": Command("", "answer the last question again", retry),
    "/undo": Command("", "take the last turn back", undo),
    "/edit": Command("", "take the last turn back and edit its question", edit),
    "/drop": Command("[N]", "forget the N oldest turns", drop),
    "/system": Command("[TEXT|off]", "show or change the system message", system, ("off",)),
    "/tokens": Command("", "how much of the context is used", tokens),
    "/model": Command("[NAME]", "show the model, or go on with another", model, group=_ANSWERS),
    "/set": Command("[NAME=VALUE ...]", "temperature, top_p, max_tokens and others", set_values, _SET, _ANSWERS),
    "/seed": Command("N|off", "the same seed for every answer, or a new one each", seed, ("off",), _ANSWERS),
    "/think": Command("[show|hide|LEVEL]", "show thinking or not, think more or less", think, _LEVELS, _ANSWERS),
    "/block": Command("N|auto", "rows of a block: 1 is plain decoding", block, ("auto",), _ANSWERS),
    "/draft": Command("on|off", "drafted or plain decoding: the same text", draft, ("on", "off"), _ANSWERS),
    "/accepted": Command("", "mark which tokens were drafted and accepted", accepted, group=_ANSWERS),
    "/stats": Command("", "all numbers of the last answer", stats, group=_ANSWERS),
    "/save": Command("[FILE]", "write the conversation to a file, later to the same", save, None, _FILES),
    "/load": Command("FILE", "go on with a saved conversation", load, None, _FILES),
    "/export": Command("FILE.md", "write the conversation as Markdown", export, None, _FILES),
    "/file": Command("PATH", "put a file's text in front of the next message", attach, None, _FILES),
    "/copy": Command("[code]", "the last answer, or its last code block, to the clipboard", copy, ("code",), _FILES),
    "/models": Command("", "the known pairs", models, group=_PROGRAM),
    "/help": Command("", "this list", show_help, group=_PROGRAM),
    "/quit": Command("", "leave; so does Ctrl-D", leave, group=_PROGRAM),
}
ALIASES = {"/exit": "/quit", "/bye": "/quit", "/q": "/quit", "/?": "/help"}
KEYS = (
    ("Enter", "sends"),
    ("Alt-Enter", "begins a new line; so does a backslash before Enter"),
    ("Up, Ctrl-R", "find earlier lines"),
    ("Ctrl-X Ctrl-E", "opens your editor"),
    ("Esc, Ctrl-C", "stop an answer; Ctrl-C also empties the line"),
    ("Ctrl-Z", "suspends; fg comes back"),
    ("//", "sends a message that begins with a slash"),
)
