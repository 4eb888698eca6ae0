"""What is asked for: one answer's prompt and settings, and the prompt's tokens. Knows pairs and the text layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
from dflash2_mlx.errors import UsageError
from dflash2_mlx.loading.pair import Pair
from dflash2_mlx.text.messages import user_message
from dflash2_mlx.text.prompt import Prompt

Conversation = str | Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to generate. `prompt`: what to answer, as text, as chat messages, or as `render` gave it.

    Raises: UsageError for settings of another type.
    """

    prompt: Conversation | Prompt
    sampling: SamplingParams
    engine: EngineParams = field(default_factory=EngineParams)
    text: TextParams = field(default_factory=TextParams)

    def __post_init__(self) -> None:
        given = (("sampling", self.sampling, SamplingParams), ("engine", self.engine, EngineParams))
        for name, value, kind in (*given, ("text", self.text, TextParams)):
            if not isinstance(value, kind):
                raise UsageError(f"{name} is of type {type(value).__name__}. Give {kind.__name__}(...).")


def default_sampling(pair: Pair) -> SamplingParams:
    """The sampling settings that the target's generation_config asks for."""
    known = pair.defaults
    return SamplingParams(
        temperature=float(known.get("temperature", 0.0)),
        top_p=float(known.get("top_p", 1.0)),
        top_k=int(known.get("top_k", 0)),
        min_p=float(known.get("min_p", 0.0)),
        repetition_penalty=float(known.get("repetition_penalty", 1.0)),
    )


def render(pair: Pair, request: Request, *, reuse: bool = False) -> Prompt:
    """The prompt's tokens; with the boundaries of later prompts where they are of use.

    Raises: PromptError, TemplateError, UsageError.
    """
    text = request.text
    if isinstance(request.prompt, Prompt):
        return request.prompt
    if text.raw:
        if not isinstance(request.prompt, str):
            raise UsageError("chat messages need the chat template: drop raw, or give the prompt as text.")
        return pair.chat.raw(request.prompt)
    messages = user_message(request.prompt, text.system) if isinstance(request.prompt, str) else request.prompt
    tools, reasoning = text.tools or None, text.reasoning
    if not reuse:
        return pair.chat.render(messages, tools=tools, reasoning=reasoning)
    most = pair.target.context_limit
    return pair.chat.render_for_reuse(messages, tools=tools, reasoning=reasoning, most=most)
