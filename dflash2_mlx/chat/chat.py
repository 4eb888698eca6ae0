"""A conversation over one session: asks it and shows what comes. Knows sessions, no commands and no MLX."""

import gc
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from dflash2_mlx import __version__
from dflash2_mlx.chat.accepted import Attribution
from dflash2_mlx.chat.conversation import Conversation, Turn, excerpt
from dflash2_mlx.chat.keys import Keyboard
from dflash2_mlx.chat.remarks import answer_line, ending
from dflash2_mlx.chat.settings import ChatSettings
from dflash2_mlx.chat.stage import Stage
from dflash2_mlx.chat.view import View, ViewOptions
from dflash2_mlx.config import SamplingParams, TextParams
from dflash2_mlx.errors import DFlash2Error, PromptTooLongError, UsageError
from dflash2_mlx.events import Delta, Finished, Prefilling, Round, Summary
from dflash2_mlx.session.session import Event, Request, Session, block_size_for, render
from dflash2_mlx.text.channels import Channels
from dflash2_mlx.text.stream import TokenDecoder

_FAILED, INTERRUPTED = 1, 130
_ENOUGH = 16  # tokens of an answer, to tell a rate from


Opened = tuple[Session, SamplingParams]


@dataclass(frozen=True, slots=True)
class Program:
    """What the rest of the program does for a chat.

    stats, models: an answer's numbers and the known pairs as lines. prepare: checks a model's name, and gives what
    loads it. keep: writes the conversation where `chat --continue` finds it.
    """

    stats: Callable[[Summary], list[str]]
    models: Callable[[], list[str]]
    prepare: Callable[[str], Callable[[], Opened]]
    keep: Callable[[Conversation, str], None]


@dataclass(slots=True)
class Heard:
    """What came of one answer. finished None: it was stopped."""

    answer: str = ""
    reasoning: str = ""
    tokens: int = 0
    finished: Finished | None = None


@dataclass(slots=True)
class Chat:
    """Answers messages over one session. Commands change it, a loop brings the messages.

    prefill: what the next prompt starts with. attached: file texts for the next message. file: where the conversation
    was saved to or loaded from. plain_rate: what this model did without drafts. over: the user leaves. code: the exit
    code so far.
    """

    session: Session
    settings: ChatSettings
    stage: Stage
    keyboard: Keyboard
    program: Program
    conversation: Conversation = field(default_factory=Conversation)
    attached: list[str] = field(default_factory=list)
    prefill: str = ""
    file: Path | None = None
    last: Finished | None = None
    plain_rate: float | None = None
    over: bool = False
    code: int = 0

    @property
    def limit(self) -> int:
        """Tokens that the context holds."""
        return self.session.pair.target.context_limit

    def answer(self, message: str) -> None:
        """Answer `message` and what is attached; the turn joins the conversation only if there is an answer.

        Raises: DFlash2Error, the message waiting in the prompt and the conversation as it was.
        """
        self.prefill = message
        if self._respond("".join(self.attached) + message):
            self.prefill, self.attached = "", []

    def _respond(self, question: str) -> bool:
        """Answer `question`; whether there is an answer, which joins the conversation then."""
        self.stage.gap()
        heard = self._listen(question)
        if not heard.tokens:
            ended = "Stopped before the first token." if heard.finished is None else self._why(heard)
            self.stage.say(f"{ended}{self._where}")
            return False
        self.conversation.turns.append(Turn(question, heard.answer, heard.reasoning, heard.finished is None))
        self.last = heard.finished or self.last
        self._comment(heard)
        return True

    def retry(self) -> None:
        """Answer the last question again; its old answer stays if there is no new one."""
        turn = self.conversation.undo()
        answered = False
        try:
            answered = self._respond(turn.question)
        finally:
            if not answered:
                self.conversation.turns.append(turn)

    def switch(self, name: str) -> None:
        """Go on with another model. Raises: DFlash2Error, the one so far going on."""
        load, before = self.program.prepare(name), self.session.pair.model_name
        self.session.close()
        del self.session  # the other one needs its memory
        gc.collect()
        try:
            self.session, sampling = load()
        except DFlash2Error:
            self.session, _ = self.program.prepare(before)()
            raise
        self.settings.sampling, self.settings.reasoning = sampling, None
        self.last = self.plain_rate = None
        self.greet()

    def prompt_tokens(self) -> int:
        """Tokens of the conversation as the model would read it now. Raises: UsageError while it is empty."""
        _ = self.conversation.last
        return len(render(self.session.pair, self._request(None)).tokens)

    def check_block(self, rows: int | None) -> str:
        """The block size that `rows` asks for, and why. Raises: UsageError for one that is impossible."""
        block = block_size_for(self.session.pair, rows)
        return f"block size {block.rows}: {block.warning or block.reason}"

    def check_reasoning(self, level: str | None) -> None:
        """Raises: UsageError for a level that the model's template cannot express."""
        self.session.pair.chat.render([{"role": "user", "content": "Hello"}], reasoning=level)

    def greet(self) -> None:
        """What is loaded and how it will answer."""
        pair = self.session.pair
        block = block_size_for(pair, self.settings.engine.block_size)
        if block.rows == 1:
            drafting = f"drafting is off: {block.reason}"
        else:
            name = "its bundled drafter" if (pair.draft_name or "").startswith("package:") else pair.draft_name
            drafting = f"drafted by {name}, block size {block.rows}: {block.warning or block.reason}"
        if self.stage.interactive:
            self.stage.say(f"dflash2-mlx {__version__}: {pair.model_name}, {self.limit} tokens of context")
            self.stage.say(drafting)
            if self.conversation.turns:
                last = excerpt(self.conversation.last.question)
                self.stage.say(f"the conversation goes on: {self.conversation.length}, the last one: {last}")
            self.stage.say("/help lists the commands, Esc or Ctrl-C stops an answer, Ctrl-D leaves")
        elif block.rows == 1:
            self.stage.say(f"dflash2-mlx: {drafting}")

    def _request(self, question: str | None) -> Request:
        settings = self.settings
        text = TextParams(reasoning=settings.reasoning)
        return Request(self.conversation.messages(question), settings.sampling, settings.engine, text)

    def _listen(self, question: str) -> Heard:
        """Show the answer to `question` while it comes, until its end, Ctrl-C or Esc."""
        heard, view = Heard(), self.stage.view(self._options())
        with self.keyboard.answering() as interrupts, closing(self._events(question)) as events:
            try:
                for event in events:
                    if isinstance(event, Finished):
                        heard.finished = event
                    elif interrupts.pressed():
                        break
                    else:
                        _take(event, heard, view)
            finally:
                view.finish()
        return heard

    def _events(self, question: str) -> Generator[Event, None, None]:
        return self.session.stream(self._request(question))

    def _options(self) -> ViewOptions:
        pair, settings = self.session.pair, self.settings
        if not settings.accepted:
            return ViewOptions(settings.thinking)
        tags = Channels(pair.tokenizer, start="answer").tags
        attribution = Attribution(TokenDecoder(pair.tokenizer, tags=tags), pair.tokenizer.think_end)
        return ViewOptions(settings.thinking, attribution)

    def _comment(self, heard: Heard) -> None:
        """The numbers of an answer, and why it ended early if it did."""
        if heard.finished is None:
            self.stage.gap()
            self.stage.say(f"Stopped. The part so far stays in the conversation ({heard.tokens} tokens).")
            if not self.stage.interactive:
                self.over, self.code = True, INTERRUPTED
            return
        why = self._why(heard)
        summary = heard.finished.summary
        if summary.mode == "plain" and summary.completion_tokens >= _ENOUGH:
            self.plain_rate = summary.decode_rate
        self.stage.answer_line(answer_line(summary, self.limit, self.plain_rate))
        if why:
            self.stage.say(why)

    def _why(self, heard: Heard) -> str | None:
        """Why an answer that finished ended early, if it did."""
        assert heard.finished is not None
        limited = self.settings.engine.max_tokens is not None
        thinking = bool(heard.reasoning) and not heard.answer.strip()
        return ending(heard.finished, thinking=thinking, limited=limited, limit=self.limit)

    @property
    def _where(self) -> str:
        """Where the message went that was not answered."""
        return " Your message is back in the prompt." if self.prefill and self.stage.edits else ""

    def fail(self, error: DFlash2Error) -> None:
        """Say why something was not done; in a pipe the exit code will tell it too."""
        self.stage.fail(str(error))
        if isinstance(error, PromptTooLongError) and self.conversation.turns:
            self.stage.say(f"/drop 1 forgets the oldest turn, /clear all of them.{self._where}")
        if not self.stage.interactive:
            self.code = max(self.code, error.exit_code if isinstance(error, UsageError) else _FAILED)


def _take(event: Event, heard: Heard, view: View) -> None:
    if isinstance(event, Prefilling):
        view.prefilling(event)
    elif isinstance(event, Round):
        heard.tokens += len(event.tokens)
        view.round(event)
    elif isinstance(event, Delta):
        if event.channel == "reasoning":
            heard.reasoning += event.text
        else:
            heard.answer += event.text
        view.delta(event)
