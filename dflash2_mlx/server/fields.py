"""Fields that several routes share, turned into the engine's parameters: honoured exactly, or refused by name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from dflash2_mlx.config import EngineParams, SamplingParams, stop_strings
from dflash2_mlx.errors import UsageError
from dflash2_mlx.server.errors import ApiError, invalid, too_long, unsupported
from dflash2_mlx.server.model import ServedModel, listed
from dflash2_mlx.server.settings import ServeSettings

MOST_STOPS = 64
_LONGEST_HEADER, _LONGEST_ID = 1000, 20
_TO_THE_END = -1  # what llama.cpp and its clients call "no limit"
_OFF = -1  # what some clients send for "no top_k"

# Would change the answer, and are not honoured anywhere: refused unless they ask for nothing.
_REFUSED = (
    *("functions", "function_call", "audio", "web_search_options", "prefix", "continue_final_message"),
    *("grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
    *("mirostat", "typical_p", "top_a", "tfs_z", "xtc_probability", "dry_multiplier", "repeat_penalty", "min_tokens"),
    *("ignore_eos", "stop_token_ids", "bad_words", "allowed_token_ids", "use_beam_search", "prompt_logprobs"),
)
_SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "seed"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)

Object = dict[str, object]


class Fields(BaseModel):
    """Sampling fields that every generating route accepts. null means the default; wrong types are refused."""

    model_config = ConfigDict(extra="allow", strict=True)

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


def read_fields(kind: type[Body], document: Mapping[str, object], model: ServedModel, *refused: str) -> Body:
    """`document` as `kind`, for the model that is served. refused: further fields that are not honoured.

    Raises: ApiError 400 naming the field, 404 for another model.
    """
    fields = _typed(kind, document)
    _check_model(fields.model, model)
    for name in (*_REFUSED, *refused):
        if (fields.model_extra or {}).get(name):  # None, false, 0 and what is empty ask for nothing
            raise unsupported(name, "it would change the answer, and this server does not implement it. Drop it.")
    return fields


def _typed(kind: type[Body], document: Mapping[str, object]) -> Body:
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


def engine_params(
    prompt_tokens: int, most: int | None, model: ServedModel, settings: ServeSettings, param: str = "max_tokens"
) -> EngineParams:
    """At most `most` tokens, and no more than the context leaves. Raises: ApiError 400 for an over-long prompt."""
    if prompt_tokens > model.context:
        raise too_long(prompt_tokens, model.context)
    if most is not None and most < _TO_THE_END:
        raise invalid(f"{param} is {most}. Give 0 or more, or leave it out for as many as the context holds.", param)
    room = model.context - prompt_tokens
    count = room if most is None or most == _TO_THE_END else min(most, room)
    return EngineParams(max_tokens=count, block_size=settings.block_size)


def reasoning_word(word: object, model: ServedModel, settings: ServeSettings, param: str) -> str | None:
    """Our word for a client's effort. Raises: ApiError 400 for no word, or one that the template cannot express."""
    if word is None:
        return None
    if not isinstance(word, str):
        raise invalid(f"{param} is no text. Give a word.", param.partition(".")[0], code="invalid_type")
    mapped = settings.effort_map.get(word, word)
    levels = model.chat.levels
    if mapped not in levels:
        raise invalid(
            f"{param} is {word[:40]!r}, which this model's chat template cannot express. "
            f"Give one of: {listed(levels)}; or leave it out.",
            param,
        )
    return mapped


def template_word(
    settings_asked: Mapping[str, object] | None, model: ServedModel, settings: ServeSettings
) -> str | None:
    """Our word for `chat_template_kwargs`. Raises: ApiError 400 for anything the template does not take that way."""
    asked = {key: value for key, value in (settings_asked or {}).items() if value is not None}
    param = "chat_template_kwargs"
    effort: str | None = None
    for key in ("reasoning_effort", "reasoning_strength"):
        word = reasoning_word(asked.pop(key, None), model, settings, f"{param}.{key}")
        effort = effort or word
    thinking = asked.pop("enable_thinking", None)
    if asked:
        raise unsupported(f"{param}.{min(asked)[:40]}", "only enable_thinking and reasoning_effort are mapped.")
    return thinking_word(thinking, effort, model, f"{param}.enable_thinking")


def thinking_word(thinking: object, effort: str | None, model: ServedModel, param: str) -> str | None:
    """Our word for a switch and an effort together. Raises: ApiError 400 where they, or they and the model, differ."""
    if thinking is None:
        return effort
    if not isinstance(thinking, bool):
        raise invalid(f"{param} is {str(thinking)[:40]!r}. Give true or false.", param, code="invalid_type")
    off = effort in ("off", "none")
    if (thinking and off) or (not thinking and effort is not None and not off):
        raise invalid(f"{param} and the effort contradict each other. Drop one of them.", param)
    if not thinking:
        if "off" not in model.chat.levels:
            raise unsupported(param, "this model's chat template cannot switch thinking off.")
        return "off"
    if effort is None and not model.thinks:
        raise unsupported(param, f"this model does not think by itself. Give an effort: {listed(model.chat.levels)}.")
    return effort


def unread(fields: Fields) -> tuple[str, ...]:
    """Names of the fields that nobody reads."""
    return tuple(name for name, value in (fields.model_extra or {}).items() if value is not None)


def ignored_header(names: Sequence[str]) -> dict[str, str]:
    """`X-DFlash2-Ignored-Params`, safe whatever a client called its fields."""
    shown = ", ".join(quote(name[:100], safe="._[]-$") for name in names[:100])
    return {"X-DFlash2-Ignored-Params": shown[:_LONGEST_HEADER]} if shown else {}
