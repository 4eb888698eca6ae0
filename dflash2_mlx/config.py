"""Parameters as frozen dataclasses, checked on construction. Knows no MLX."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from types import MappingProxyType
from typing import Literal

from dflash2_mlx.errors import UsageError

Acceptance = Literal["coupled", "rejection"]
MAX_TOP_LOGPROBS = 20
_COLDEST = 1e-30
STORED_BITS = 16  # the bits that mean: as stored


def _between(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{name} is {value!r}, which is not a number. Give a number from {low} to {high}.")
    if not low <= value <= high:
        raise UsageError(f"{name} is {value}, outside its range. Give a number from {low} to {high}.")


def _whole(name: str, value: int, low: int, high: int = 2**63 - 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} is {value!r}, which is not a whole number.")
    if not low <= value <= high:
        top = f" to {high}" if high < 2**63 - 1 else " upwards"
        raise UsageError(f"{name} is {value}, outside its range. Give a whole number from {low}{top}.")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the target's token is chosen. The defaults are greedy decoding without any change of logits.

    temperature: 0 is greedy; less than 1e-30, by which float32 cannot divide, is 0.
    top_p: 1 is off. top_k: 0 or -1 is off. min_p: 0 is off.
    seed: any int; None draws one. repetition_penalty: 1 is off, over prompt and output.
    presence_penalty, frequency_penalty: 0 is off, over the output only.
    logit_bias: token id -> number added to its logit. logprobs: None is off, N reports the N likeliest (0..20).

    Raises: UsageError for a value outside its range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _between("temperature", self.temperature, 0.0, 100.0)
        if self.temperature < _COLDEST:
            object.__setattr__(self, "temperature", 0.0)
        _between("top_p", self.top_p, 0.0, 1.0)
        if self.top_k == -1 and type(self.top_k) is int:  # how others say "off"
            object.__setattr__(self, "top_k", 0)
        _whole("top_k", self.top_k, 0)
        _between("min_p", self.min_p, 0.0, 1.0)
        _between("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _between("presence_penalty", self.presence_penalty, -100.0, 100.0)
        _between("frequency_penalty", self.frequency_penalty, -100.0, 100.0)
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise UsageError(f"seed is {self.seed!r}, which is not a whole number.")
        if not isinstance(self.logit_bias, Mapping):
            raise UsageError(f"logit_bias is {self.logit_bias!r}. Give a mapping of token ids to numbers.")
        for token, bias in self.logit_bias.items():
            _whole("logit_bias token id", token, 0)
            _between(f"logit_bias of token {token}", bias, -1000.0, 1000.0)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MAX_TOP_LOGPROBS)

    @property
    def penalised(self) -> bool:
        """Whether any penalty depends on the tokens so far."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True, slots=True)
class EngineParams:
    """How far and how wide the loop runs.

    max_tokens: at most so many tokens, None = to the end of the context; 0 = an empty answer.
    block_size: rows of a block, anchor included; None = chosen round by round; 1 = plain decoding.
    acceptance: `coupled` (a seed gives the same text at any block size) or `rejection`.
    end_tokens: ids that end the answer. prefill_chunk: the most prompt tokens of a forward pass, None = 512 (1,024
    where a chip's fused attention begins there). Passes are shorter where attention scores would pass 1 GiB, and on
    machines where one would take more than about a second, so that a cancelled answer ends soon.

    Raises: UsageError for a value outside its range.
    """

    max_tokens: int | None = None
    block_size: int | None = None
    acceptance: Acceptance = "coupled"
    end_tokens: frozenset[int] = frozenset()
    prefill_chunk: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 0)
        if self.block_size is not None:
            _whole("block_size", self.block_size, 1)
        if self.acceptance not in ("coupled", "rejection"):
            raise UsageError(f"acceptance is {self.acceptance!r}. Give coupled or rejection.")
        if self.prefill_chunk is not None:
            _whole("prefill_chunk", self.prefill_chunk, 1)
        if isinstance(self.end_tokens, str) or not isinstance(self.end_tokens, Iterable):
            raise UsageError(f"end_tokens is {self.end_tokens!r}. Give a set of token ids.")
        object.__setattr__(self, "end_tokens", frozenset(self.end_tokens))
        for token in self.end_tokens:
            _whole("an end token", token, -(2**63))


@dataclass(frozen=True, slots=True)
class LoadParams:
    """Which two checkpoints make the pair.

    model: folder, repository id (`owner/name` or `owner/name@revision`) or alias. draft: the same, None = the
    drafter known for this model, if one is. draft_bits: quantise the drafter on load (4 or 8;
    16 = as stored; None = 4 for a quantised target, else 16).
    speculate: False = plain decoding, the drafter is not loaded. require_draft: no drafter is an error.

    Raises: UsageError for values that contradict each other.
    """

    model: str
    draft: str | None = None
    draft_bits: int | None = None
    draft_revision: str | None = None
    speculate: bool = True
    require_draft: bool = False

    def __post_init__(self) -> None:
        for name, value in (("model", self.model), ("draft", self.draft)):
            if isinstance(value, PathLike):
                object.__setattr__(self, name, fspath(value))
            elif not isinstance(value, str) and not (value is None and name == "draft"):
                raise UsageError(f"{name} is {value!r}. Give a folder, a repository id or an alias.")
        if self.draft_bits not in (None, 4, 8, 16):
            raise UsageError(f"draft_bits is {self.draft_bits}. Give 4 or 8, or 16 for the stored precision.")
        drafting = (self.draft, self.draft_bits, self.draft_revision, self.require_draft)
        if not self.speculate and any(drafting):
            raise UsageError("no-draft excludes draft, draft-bits, draft-revision and require-draft. Drop one of them.")

    def check_block(self, rows: int) -> None:
        """Raise UsageError where a drafter is required and blocks of so many rows have no place for a draft."""
        if rows == 1 and self.require_draft:
            raise UsageError("a block of one row is plain decoding, yet --require-draft is given. Drop one of them.")

    def bits_of_drafter(self, *, target_quantized: bool, drafter_quantized: bool) -> int:
        """The bits that the drafter's linear layers are loaded in; STORED_BITS = as they are stored."""
        return self.draft_bits or (4 if target_quantized and not drafter_quantized else STORED_BITS)


@dataclass(frozen=True, slots=True)
class TextParams:
    """What the text layer does around the tokens.

    stop: strings that end the answer, looked for behind the reasoning only: in the answer, and in tool calls as the
    model writes them. system: a system message put before a prompt given as a string. reasoning: off, minimal, low,
    medium, high, xhigh or max; None = the template's default. tools: function descriptions in OpenAI's form.
    raw: no chat template.

    Raises: UsageError for an empty stop string or for settings that raw text has no place for.
    """

    stop: tuple[str, ...] = ()
    system: str | None = None
    reasoning: str | None = None
    tools: tuple[Mapping[str, object], ...] = ()
    raw: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", stop_strings(self.stop))  # one string is one stop, not its letters
        for name, value in (("system", self.system), ("reasoning", self.reasoning)):
            if value is not None and not isinstance(value, str):
                raise UsageError(f"{name} is {value!r}. Give text.")
        if isinstance(self.tools, str | Mapping) or not isinstance(self.tools, Sequence):
            raise UsageError(f"tools is {self.tools!r}. Give a list of function descriptions in OpenAI's form.")
        for tool in self.tools:
            if not isinstance(tool, Mapping):
                raise UsageError(f"a tool is {tool!r}. Give a function description in OpenAI's form.")
        object.__setattr__(self, "tools", tuple(self.tools))
        if self.raw and (self.system is not None or self.reasoning is not None or self.tools):
            raise UsageError("raw text has no chat template: drop system, reasoning and tools, or drop raw.")


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """`stop` as a tuple of non-empty strings.

    Raises: UsageError for an empty string, which would end every answer at once.
    """
    if not isinstance(stop, str | Sequence | None):
        raise UsageError(f"stop is {stop!r}. Give a text, or a list of texts.")
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    for string in strings:
        if not isinstance(string, str) or not string:
            raise UsageError(f"a stop string is {string!r}. Give a non-empty text.")
    return strings
