"""Messages to token ids through the model's chat template. Knows a tokenizer, nothing of the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dflash2_mlx.errors import PromptError, TemplateError
from dflash2_mlx.events import Channel
from dflash2_mlx.text.boundaries import boundaries
from dflash2_mlx.text.continuing import MARK, answered, open_turns
from dflash2_mlx.text.messages import EMPTY_PROMPT, Message, plain_messages
from dflash2_mlx.text.reasoning import ReasoningLevels, Settings
from dflash2_mlx.text.tags import STATES, Tool, Transitions

PROBE: Sequence[Message] = ({"role": "user", "content": "Hello"},)


class TemplateTokenizer(Protocol):
    """What is used of an mlx-lm TokenizerWrapper."""

    @property
    def has_chat_template(self) -> bool: ...
    @property
    def chat_template(self) -> object: ...
    @property
    def think_start(self) -> str | None: ...
    @property
    def think_end(self) -> str | None: ...
    @property
    def response_transitions(self) -> Transitions: ...

    def encode(self, text: str, /, *, add_special_tokens: bool = True) -> list[int]: ...

    # The keywords end in whatever settings a template reads.
    def apply_chat_template(
        self, messages: list[dict[str, object]], /, *, tokenize: bool, **settings: object
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """The ids to prefill, and the channel that the first generated text belongs to.

    boundaries: numbers of leading tokens that a later prompt is likely to share: the system prompt, this turn.
    continued: the prompt ends inside an answer, which goes on.
    """

    tokens: tuple[int, ...]
    channel: Channel
    boundaries: tuple[int, ...] = ()
    continued: bool = False


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A prompt as text."""

    text: str
    channel: Channel
    continued: bool


class ChatFormat:
    """One tokenizer's way to write a conversation. Tries the template once, to learn which settings it knows."""

    def __init__(self, tokenizer: TemplateTokenizer) -> None:
        self._tokenizer = tokenizer
        starts = [tag for edges in tokenizer.response_transitions.values() for tag, to in edges if _reasons(to)]
        self._openings = tuple(tag for tag in (tokenizer.think_start, *starts) if tag)
        source = tokenizer.chat_template
        self._levels = ReasoningLevels(
            lambda settings: self._apply(plain_messages(PROBE), None, settings),
            source=source if isinstance(source, str) else "",
            thinks=bool(self._openings),
        )

    @property
    def levels(self) -> Mapping[str, str]:
        """The reasoning words that the template can express -> what it is told."""
        return self._levels.meanings if self._tokenizer.has_chat_template else {}

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] | None = None, reasoning: str | None = None
    ) -> Prompt:
        """The prompt for the next assistant turn, or for the rest of the last one.

        A last message of the assistant's with text and without tool calls goes on: the prompt ends right behind its
        text, of which nothing is trimmed at the end. Text in a think tag that is still open is reasoning, and so is
        the reasoning of a message without other text.

        Raises: PromptError for messages that cannot be read, TemplateError if the template refuses them,
        UsageError for a reasoning word that it cannot express.
        """
        rendered = self._render(messages, tools, reasoning)
        tokens = self._encode(rendered.text, add_special_tokens=False)
        if not tokens:
            raise PromptError("the chat template made an empty prompt of these messages. Use a raw prompt (`--raw`).")
        return Prompt(tuple(tokens), rendered.channel, continued=rendered.continued)

    def render_for_reuse(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] | None = None,
        reasoning: str | None = None,
        most: int | None = None,
    ) -> Prompt:
        """What `render` gives, with the boundaries that later prompts are likely to share. Raises: as `render`.

        most: a prompt of more tokens gets none, since it will be refused.
        """
        prompt = self.render(messages, tools=tools, reasoning=reasoning)
        if most is not None and len(prompt.tokens) > most:
            return prompt

        def other(later: Sequence[Message]) -> Sequence[int] | None:
            try:
                return self.render(later, tools=tools, reasoning=reasoning).tokens
            except (PromptError, TemplateError):  # a template may refuse what is only tried
                return None

        plain = plain_messages(messages)
        return replace(prompt, boundaries=boundaries(plain, answered(plain, prompt.continued), prompt.tokens, other))

    def render_text(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] | None = None, reasoning: str | None = None
    ) -> str:
        """The text that `render` tokenises. Raises: as `render`."""
        return self._render(messages, tools, reasoning).text

    def _render(self, messages: Sequence[Message], tools: Sequence[Tool] | None, reasoning: str | None) -> _Rendered:
        if not self._tokenizer.has_chat_template:
            raise TemplateError("this model has no chat template, so it cannot chat. Use a raw prompt (`--raw`).")
        plain = plain_messages(messages)
        settings = self._levels.settings(reasoning)
        turns = open_turns(plain[-1], self._tokenizer.think_start, self._tokenizer.think_end)
        try:
            if not turns:
                text = self._apply(plain, tools, settings)
                return _Rendered(text, "reasoning" if text.rstrip().endswith(self._openings) else "answer", False)
            for turn in turns:
                open_end = {**settings, "add_generation_prompt": False}
                text, mark, _ = self._apply([*plain[:-1], turn.message], tools, open_end).rpartition(MARK)
                if mark and text.endswith(turn.ending):
                    return _Rendered(text, turn.channel, True)
        except Exception as error:  # a template fails as jinja, as Python, or in its own words
            raise TemplateError(_refusal(error, plain)) from error
        raise TemplateError(
            "the last message is the assistant's, and this model's chat template does not write its text as it is, "
            "so the answer cannot go on from it. End the messages with a user message."
        )

    def raw(self, text: str) -> Prompt:
        """`text` without any template, with the special tokens that the tokenizer adds by itself.

        Raises: PromptError if `text` is blank or no text.
        """
        if not text.strip():
            raise PromptError(EMPTY_PROMPT)
        return Prompt(tuple(self._encode(text, add_special_tokens=True)), "answer")

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PromptError(
                f"the prompt is not UTF-8 text: it holds {text[error.start]!a}, half a character. Convert it first."
            ) from None
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def _apply(self, messages: list[dict[str, object]], tools: Sequence[Tool] | None, settings: Settings) -> str:
        offered = [dict(tool) for tool in tools] if tools else None
        return self._tokenizer.apply_chat_template(
            messages, tokenize=False, tools=offered, **{"add_generation_prompt": True, **settings}
        )


def _reasons(state: str) -> bool:
    return STATES.get(state) == "reasoning"


def _refusal(error: Exception, messages: list[dict[str, object]]) -> str:
    """The template's reason in one line, and what to do next."""
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return f"the chat template refused these messages: {reason}. {_advice([str(m['role']) for m in messages])}"


def _advice(roles: list[str]) -> str:
    if "user" not in roles:
        return "Add a user message."
    leading = next(number for number, role in enumerate(roles) if role not in ("system", "developer"))
    if any(role in ("system", "developer") for role in roles[leading:]):
        return "Put all system messages at the beginning."
    return "Change the messages as it says, or use a raw prompt (`--raw`)."
