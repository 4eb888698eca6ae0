"""Messages to token ids through the model's chat template. Knows a tokenizer, nothing of the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from dflash2_mlx.errors import PromptError, TemplateError
from dflash2_mlx.events import Channel
from dflash2_mlx.text.markers import EncodingTokenizer, Markers, Written
from dflash2_mlx.text.messages import EMPTY_PROMPT, Message, plain_messages
from dflash2_mlx.text.reasoning import ReasoningLevels, Settings
from dflash2_mlx.text.tags import STATES, TaggedTokenizer, Tool
from dflash2_mlx.text.turns import MARK, boundaries, open_turns

PROBE: Sequence[Message] = ({"role": "user", "content": "Hello"},)


class TemplateTokenizer(EncodingTokenizer, TaggedTokenizer, Protocol):
    """What is used of an mlx-lm TokenizerWrapper."""

    @property
    def has_chat_template(self) -> bool: ...
    @property
    def chat_template(self) -> object: ...
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
    """A prompt as the template wrote it, with placeholders for markers that it did not write."""

    text: str
    channel: Channel
    continued: bool


class ChatFormat:
    """One tokenizer's way to write a conversation. Tries the template once, to learn which settings it knows."""

    def __init__(self, tokenizer: TemplateTokenizer) -> None:
        self._tokenizer = tokenizer
        starts = [tag for edges in tokenizer.response_transitions.values() for tag, to in edges if _reasons(to)]
        self._openings = tuple(tag for tag in (tokenizer.think_start, *starts) if tag)
        template = tokenizer.chat_template
        source = template if isinstance(template, str) else ""
        calls = (tokenizer.tool_call_start, tokenizer.tool_call_end)
        self._markers = Markers(tokenizer, source, {t for t in (*self._openings, tokenizer.think_end, *calls) if t})
        self._levels = ReasoningLevels(
            lambda settings: self._apply(PROBE, None, settings),
            source=source,
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
        return self._prompt(self._render(messages, tools, reasoning))

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
        rendered = self._render(messages, tools, reasoning)
        prompt = self._prompt(rendered)
        if most is not None and len(prompt.tokens) > most:
            return prompt
        written = Written(self._markers, rendered.text, prompt.tokens)

        def shared(later: Sequence[Message]) -> int:
            try:
                return written.shared(self._render(later, tools, reasoning).text)
            except (PromptError, TemplateError):  # a template may refuse what is only tried
                return 0

        places = boundaries(plain_messages(messages), continued=prompt.continued, shared=shared)
        return replace(prompt, boundaries=tuple(sorted({min(n, len(prompt.tokens) - 1) for n in places} - {0})))

    def render_text(
        self, messages: Sequence[Message], *, tools: Sequence[Tool] | None = None, reasoning: str | None = None
    ) -> str:
        """The text that `render` tokenises. Raises: as `render`."""
        return self._markers.show(self._render(messages, tools, reasoning).text)

    def _render(self, messages: Sequence[Message], tools: Sequence[Tool] | None, reasoning: str | None) -> _Rendered:
        if not self._tokenizer.has_chat_template:
            raise TemplateError("this model has no chat template, so it cannot chat. Use a raw prompt (`--raw`).")
        settings = self._levels.settings(reasoning)
        plain, offered = self._markers.hide(plain_messages(messages), tools)
        turns = open_turns(plain[-1], self._tokenizer.think_start, self._tokenizer.think_end)
        try:
            if not turns:
                text = self._apply(plain, offered, settings)
                return _Rendered(text, "reasoning" if text.rstrip().endswith(self._openings) else "answer", False)
            for turn in turns:
                open_end = {**settings, "add_generation_prompt": False}
                text, mark, _ = self._apply([*plain[:-1], turn.message], offered, open_end).rpartition(MARK)
                if mark and text.endswith(turn.ending):
                    return _Rendered(text, turn.channel, True)
        except Exception as error:  # a template fails as jinja, as Python, or in its own words
            raise TemplateError(self._markers.show(_refusal(error, plain))) from error
        raise TemplateError(
            "the last message is the assistant's, and this model's chat template does not write its text as it is, "
            "so the answer cannot go on from it. End the messages with a user message."
        )

    def raw(self, text: str) -> Prompt:
        """`text` without any template, with the special tokens that the tokenizer adds by itself and those in it.

        Raises: PromptError if `text` is blank or no text.
        """
        if not text.strip():
            raise PromptError(EMPTY_PROMPT)
        _check_text(text)
        return Prompt(tuple(self._tokenizer.encode(text, add_special_tokens=True)), "answer")

    def _prompt(self, rendered: _Rendered) -> Prompt:
        _check_text(rendered.text)
        tokens = self._markers.encode(rendered.text)
        if not tokens:
            raise PromptError("the chat template made an empty prompt of these messages. Use a raw prompt (`--raw`).")
        return Prompt(tuple(tokens), rendered.channel, continued=rendered.continued)

    def _apply(self, messages: Sequence[Message], tools: Sequence[Tool] | None, settings: Settings) -> str:
        given = {"add_generation_prompt": True, "tools": tools, **settings}
        return self._tokenizer.apply_chat_template([dict(message) for message in messages], tokenize=False, **given)


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the prompt is not UTF-8 text: it holds {text[error.start]!a}, half a character. Convert it first."
        ) from None


def _reasons(state: str) -> bool:
    return STATES.get(state) == "reasoning"


def _refusal(error: Exception, messages: Sequence[Message]) -> str:
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
