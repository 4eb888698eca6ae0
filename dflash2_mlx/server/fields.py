"""Fields that several routes share, turned into the engine's parameters: honoured exactly, or refused by name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pydantic import ValidationError

from dflash2_mlx.config import EngineParams, SamplingParams, stop_strings
from dflash2_mlx.errors import UsageError
from dflash2_mlx.server.errors import ApiError, invalid, too_long, unsupported
from dflash2_mlx.server.model import ServedModel
from dflash2_mlx.server.reading import Reading, RequestObject
from dflash2_mlx.text.reasoning import WORDS

MOST_STOPS = 64
_LONGEST_ID = 20
_TO_THE_END = -1  # what llama.cpp and its clients call "no limit"
_OFF = -1  # what some clients send for "no top_k", and for a seed that is to be drawn

# Would change the answer, and are not honoured anywhere: refused unless they ask for nothing.
_REFUSED = (
    *("functions", "function_call", "audio", "web_search_options"),
    *("grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
    *("mirostat", "typical_p", "top_a", "tfs_z", "xtc_probability", "dry_multiplier", "repeat_penalty", "min_tokens"),
    *("ignore_eos", "stop_token_ids", "bad_words", "allowed_token_ids", "use_beam_search", "prompt_logprobs"),
)
# What asks for nothing beside null, false, 0 and what is empty. `{}` asks for a web search with its own settings.
_NOTHING: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("typical_p", "tfs_z", "repeat_penalty"), (1,)),
    "function_call": ("none", "auto"),
}
_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "seed"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
_NO_THINKING = ("off", "none")


class Fields(RequestObject):
    """Sampling fields that every generating route accepts."""

    model: str | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None


Body = TypeVar("Body", bound=Fields)
AnyObject = TypeVar("AnyObject", bound=RequestObject)


def read_fields(kind: type[Body], document: Mapping[str, object], reading: Reading, *refused: str) -> Body:
    """`document` as `kind`, for the model that is served. refused: further fields that are not honoured.

    Raises: ApiError 400 naming the field, 404 for another model.
    """
    fields = typed(kind, document)
    _check_model(fields.model, reading.model)
    given = fields.model_extra or {}
    for name in (*_REFUSED, *refused):
        value = given.get(name)
        if (value or (value == {} and name == "web_search_options")) and value not in _NOTHING.get(name, ()):
            raise unsupported(name, "it would change the answer, and this server does not implement it. Drop it.")
    reading.ignore_unread(fields, "")
    return fields


def typed(kind: type[AnyObject], document: Mapping[str, object]) -> AnyObject:
    """`document` as `kind`. Raises: ApiError 400 naming the field."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("list[", "dict[")))
        param = place.split(".")[0] or None
        missing = first["type"] == "missing"
        code = "missing_required_parameter" if missing else "invalid_type"
        raise invalid(f"{place or 'the body'}: {first['msg']}.", param, code=code) from None


def _check_model(name: str | None, model: ServedModel) -> None:
    """Raise ApiError 404 unless `name` is the model that is served; nothing is ever fetched for a request."""
    if name is not None and name not in model.names:
        message = f"the model {name[:200]!r} is not served here. Use {model.name!r}, or start another server with it."
        raise ApiError(404, "model_not_found", message, "model")


def sampling_params(fields: Fields, model: ServedModel, logprobs: int | None = None) -> SamplingParams:
    """The model's own settings where the request gives none. Raises: ApiError 400 naming the field."""
    given = {name: value for name in _SAMPLING if (value := getattr(fields, name)) is not None}
    if given.get("top_k") == _OFF:
        given["top_k"] = 0
    if given.get("seed") == _OFF:
        given["seed"] = None
    if fields.logit_bias:
        given["logit_bias"] = {_token(key, model): value for key, value in fields.logit_bias.items()}
    try:
        return replace(model.sampling, **given, logprobs=logprobs)
    except UsageError as error:
        raise invalid(str(error), str(error).split()[0]) from None


def _token(key: str, model: ServedModel) -> int:
    if not (key.isascii() and key.isdigit()) or len(key) > _LONGEST_ID or int(key) >= model.vocab_size:
        raise invalid(
            f"logit_bias names token {key[:40]!r}, which is none of 0 to {model.vocab_size - 1}. Give token ids.",
            "logit_bias",
        )
    return int(key)


def stops(stop: str | Sequence[str] | None, param: str = "stop") -> tuple[str, ...]:
    """The stop strings. Raises: ApiError 400."""
    try:
        strings = tuple(dict.fromkeys(stop_strings(stop)))
    except UsageError as error:
        raise invalid(str(error), param) from None
    if len(strings) > MOST_STOPS:
        raise invalid(f"{param} has {len(strings)} strings, and {MOST_STOPS} is the most.", param)
    return strings


def engine_params(prompt_tokens: int, most: int | None, reading: Reading, param: str = "max_tokens") -> EngineParams:
    """At most `most` tokens, and no more than the context leaves. Raises: ApiError 400 for an over-long prompt."""
    context = reading.model.context
    if prompt_tokens > context:
        raise too_long(prompt_tokens, context)
    if most is not None and most < 0:
        raise invalid(f"{param} is {most}. Give 0 or more, or leave it out for as many as the context holds.", param)
    room = context - prompt_tokens
    return EngineParams(max_tokens=room if most is None else min(most, room), block_size=reading.settings.block_size)


def unless_unlimited(most: int | None) -> int | None:
    """The limit of OpenAI's chat and completions, where -1 means as many as the context holds."""
    return None if most == _TO_THE_END else most


def reasoning_word(word: str | None, reading: Reading, param: str) -> str | None:
    """Our word for a client's effort; None leaves it to the template, which is named where it has no such level.

    Raises: ApiError 400 for no word of ours, or where thinking is to be off and cannot be.
    """
    if word is None:
        return None
    mapped, levels = reading.settings.effort_map.get(word, word), reading.model.chat.levels
    if mapped in levels:
        return mapped
    if mapped not in WORDS:
        known = ", ".join(levels or WORDS)
        raise invalid(f"{param} is {word[:40]!r}, which is no effort. Give one of: {known}; or leave it out.", param)
    if mapped in _NO_THINKING:
        return _without_thinking(reading, param)
    reading.ignore(param)
    return None


def template_word(given: Mapping[str, object] | None, reading: Reading) -> str | None:
    """Our word for `chat_template_kwargs`. Raises: ApiError 400 for anything the template does not take that way."""
    asked = {key: value for key, value in (given or {}).items() if value is not None}
    param = "chat_template_kwargs"
    effort: str | None = None
    for key in ("reasoning_effort", "reasoning_strength"):
        word, place = asked.pop(key, None), f"{param}.{key}"
        if not isinstance(word, str | None):
            raise invalid(f"{place} is no text. Give a word.", param, code="invalid_type")
        effort = effort or reasoning_word(word, reading, place)
    thinking = asked.pop("enable_thinking", None)
    if asked:
        raise unsupported(f"{param}.{min(asked)[:40]}", "only enable_thinking and reasoning_effort are mapped.")
    return thinking_word(thinking, effort, reading, f"{param}.enable_thinking")


def thinking_word(thinking: object, effort: str | None, reading: Reading, param: str) -> str | None:
    """Our word for a switch and an effort together. Raises: ApiError 400 where they, or they and the model, differ."""
    if thinking is None:
        return effort
    if not isinstance(thinking, bool):
        raise invalid(f"{param} is {str(thinking)[:40]!r}. Give true or false.", param, code="invalid_type")
    off = effort in _NO_THINKING
    if (thinking and off) or (not thinking and effort is not None and not off):
        raise invalid(f"{param} and the effort contradict each other. Drop one of them.", param)
    if not thinking:
        return _without_thinking(reading, param)
    if effort is not None or reading.model.thinks:
        return effort
    levels = [word for word in reading.model.chat.levels if word not in _NO_THINKING]
    if not levels:  # a model that cannot think
        reading.ignore(param)
    return "medium" if "medium" in levels else next(iter(levels), None)


def _without_thinking(reading: Reading, param: str) -> str | None:
    """The word that switches thinking off; None where there is none to switch off."""
    if _NO_THINKING[0] in reading.model.chat.levels:
        return _NO_THINKING[0]
    if reading.model.thinks:
        raise unsupported(param, "this model's chat template cannot switch thinking off.")
    return None
