"""How answers are made and shown, and the words that change it. Pure."""

from dataclasses import dataclass, fields, replace

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.errors import UsageError

SAMPLING = tuple(field.name for field in fields(SamplingParams) if field.name not in ("seed", "logit_bias", "logprobs"))
NAMES = (*SAMPLING, "max_tokens")
_WHOLE = ("top_k", "max_tokens")


@dataclass(slots=True)
class ChatSettings:
    """Everything that commands can change. thinking: show it. accepted: colour accepted tokens."""

    sampling: SamplingParams
    engine: EngineParams
    reasoning: str | None = None
    thinking: bool = True
    accepted: bool = False

    def set(self, words: str) -> None:
        """Take `name=value` words over, all of them or none. Raises: UsageError."""
        sampling, engine = self.sampling, self.engine
        for word in words.split():
            name, equals, value = word.partition("=")
            if not equals or name not in NAMES:
                raise UsageError(f"{word!r} is not NAME=VALUE. The names: {', '.join(NAMES)}.")
            if name == "max_tokens":
                engine = replace(engine, max_tokens=None if value == "off" else int(_number(name, value)))
            else:
                sampling = replace(sampling, **{name: _number(name, value)})  # type: ignore[arg-type]
        self.sampling, self.engine = sampling, engine

    def lines(self) -> str:
        """All values, as `set` takes them."""
        values = [f"{name}={getattr(self.sampling, name)}".removesuffix(".0") for name in SAMPLING]
        most = self.engine.max_tokens
        return " ".join([*values, f"max_tokens={'off' if most is None else most}"])


def _number(name: str, value: str) -> int | float:
    try:
        return int(value) if name in _WHOLE else float(value)
    except ValueError:
        kind = "a whole number" if name in _WHOLE else "a number"
        raise UsageError(f"{name} is {value!r}, not {kind}. /set shows what there is.") from None
