"""A drafter's config.json, checked key by key before any weight is read. Knows no MLX.

Source: the published DFlash 2 and DFlash 1 checkpoints; Meta's `muse_glimmer_assistant` config.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from dflash2_mlx.errors import ConfigError, UnsupportedError

DFLASH2_ARCHITECTURE = "DFlash2DraftModel"
DRAFTER_ARCHITECTURES = (DFLASH2_ARCHITECTURE, "DFlashDraftModel", "MuseGlimmerAssistantModel")
_MOST_LAYERS = 1024  # far more than any drafter has; a list of 2^31 is built for nobody
SPARE_ROWS = 256  # of the draft cache: room for so many more rows before what can be seen is moved
_FULL, _SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class ConvConfig:
    """Two-tap dynamic convolution: `kernel_size` taps, one dynamic number per tap and `group_size` channels."""

    kernel_size: int
    group_size: int


@dataclass(frozen=True, slots=True)
class SelectorConfig:
    """Candidate selector: `rank` of its codebooks, `top_k` candidates a position."""

    rank: int
    top_k: int


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """What a drafter is. `windows[i]` is layer i's sliding window (None = full attention), `causal[i]` whether
    its block rows see only earlier block rows. `vocab_size` and `num_target_layers` are None where the config
    leaves them to the target. `selector` and `conv` are None for DFlash 1.
    """

    source: str
    architecture: str
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int | None
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    vocab_size: int | None
    num_target_layers: int | None
    block_size: int
    target_layer_ids: tuple[int, ...]
    mask_token_id: int
    conv: ConvConfig | None
    selector: SelectorConfig | None
    input_embedding_scale: float
    output_multiplier: float
    softcap: float | None
    quantization: Mapping[str, object] | None

    @property
    def context_rows(self) -> int | None:
        """How many context rows the drafter can see at most; None = all, because a layer has full attention."""
        if any(window is None for window in self.windows):
            return None
        return max(cast(int, window) for window in self.windows) - 1

    @property
    def kind(self) -> str:
        """The method by name, for people."""
        return "DFlash 2" if self.selector else "DFlash 1"


def is_drafter(config: Mapping[str, object]) -> bool:
    """Whether a config.json is that of a drafter."""
    architectures = config.get("architectures")
    return isinstance(architectures, list) and any(name in DRAFTER_ARCHITECTURES for name in architectures)


def parse_drafter_config(raw: Mapping[str, object], source: str) -> DrafterConfig:
    """The checked config of the drafter described by `raw`, the content of the file `source`.

    Raises: ConfigError naming file and key; UnsupportedError for a network this package does not build.
    """
    keys = _Keys(raw, source)
    architecture = _architecture(raw, source)
    layers = keys.whole("num_hidden_layers", 1, _MOST_LAYERS)
    hidden, heads, kv_heads = (keys.whole(k, 1) for k in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    if heads % kv_heads:
        raise keys.error("num_key_value_heads", f"{kv_heads} does not divide num_attention_heads {heads}")
    block_size = keys.whole("block_size", 2, 64)
    windows = _windows(keys, layers, block_size)
    vocab_size = keys.optional_whole("vocab_size", 1)
    num_target_layers = keys.optional_whole("num_target_layers", 1)
    _refuse_foreign(keys, raw)
    return DrafterConfig(
        source=source,
        architecture=architecture,
        hidden_size=hidden,
        intermediate_size=keys.whole("intermediate_size", 1),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=keys.optional_whole("head_dim", 2) or hidden // heads,
        rms_norm_eps=keys.number("rms_norm_eps", 0.0, 1.0),
        rope_theta=_rope_theta(keys, raw),
        max_position_embeddings=keys.optional_whole("max_position_embeddings", 1),
        windows=windows,
        causal=_causal(keys, architecture, windows),
        vocab_size=vocab_size,
        num_target_layers=num_target_layers,
        block_size=block_size,
        target_layer_ids=_taps(keys, num_target_layers),
        mask_token_id=keys.whole("mask_token_id", 0, (vocab_size or 2**31) - 1),
        conv=_conv(keys, hidden) if architecture == DFLASH2_ARCHITECTURE else None,
        selector=_selector(keys, vocab_size) if architecture == DFLASH2_ARCHITECTURE else None,
        input_embedding_scale=keys.number("input_embedding_scale", -1e6, 1e6, default=1.0),
        output_multiplier=keys.number("output_multiplier", -1e6, 1e6, default=1.0),
        softcap=_softcap(keys),
        quantization=_quantization(keys),
    )


def _architecture(raw: Mapping[str, object], source: str) -> str:
    names = raw.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if name not in DRAFTER_ARCHITECTURES:
        raise ConfigError(
            f"{source}: architectures is {names!r}, not a drafter's ({', '.join(DRAFTER_ARCHITECTURES)}). "
            "Pass a DFlash drafter as --draft and the target as --model."
        )
    return str(name)


class _Keys:
    """Typed, range-checked access to the keys, wherever a published config keeps them."""

    def __init__(self, raw: Mapping[str, object], source: str) -> None:
        nested = raw.get("dflash_config", {})
        if not isinstance(nested, Mapping):
            raise ConfigError(f"{source}: dflash_config is {nested!r}, not a mapping. Fetch the drafter again.")
        self._raw, self._nested, self._source = raw, nested, source

    def error(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self._source}: {key}: {what}. The file is not a valid drafter config; fetch it again.")

    def get(self, key: str) -> object:
        """The value in `dflash_config` or at top level, else None. Raises: ConfigError where both differ."""
        nested, top = self._nested.get(key), self._raw.get(key)
        if nested is not None and top is not None and nested != top:
            raise self.error(key, f"it is {nested!r} in dflash_config and {top!r} at top level")
        return top if nested is None else nested

    def whole(self, key: str, low: int, high: int = 2**31) -> int:
        value = self.get(key)
        if value is None:
            raise ConfigError(
                f"{self._source} lacks {key} (in dflash_config or at top level). Is this a DFlash drafter? "
                "It is never guessed; fetch the drafter again or ask its authors."
            )
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, f"{value!r} is not a whole number from {low} to {high}")
        return value

    def optional_whole(self, key: str, low: int) -> int | None:
        return None if self.get(key) is None else self.whole(key, low)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        value = self.get(key)
        return self.checked(key, default if value is None else value, low, high)

    def checked(self, key: str, value: object, low: float, high: float) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.error(key, f"{value!r} is not a number from {low} to {high}")
        return float(value)


def _windows(keys: _Keys, layers: int, block_size: int) -> tuple[int | None, ...]:
    types = keys.get("layer_types")
    if types is None:
        types = [_FULL if keys.get("sliding_window") is None else _SLIDING] * layers
    if not isinstance(types, list) or len(types) != layers:
        raise keys.error("layer_types", f"{types!r} does not name each of the {layers} layers")
    unknown = sorted({str(t) for t in types} - {_FULL, _SLIDING})
    if unknown:
        raise keys.error("layer_types", f"{unknown[0]!r} is neither {_FULL} nor {_SLIDING}")
    if _SLIDING not in types:
        return (None,) * layers
    window = keys.whole("sliding_window", 1)
    if window < block_size:
        raise keys.error("sliding_window", f"{window} is smaller than block_size {block_size}")
    return tuple(window if t == _SLIDING else None for t in types)


def _causal(keys: _Keys, architecture: str, windows: tuple[int | None, ...]) -> tuple[bool, ...]:
    """Missing `is_causal`: sliding layers are causal inside the block, full ones are not; Meta's never are."""
    value = keys.get("is_causal")
    if isinstance(value, bool):
        return (value,) * len(windows)
    if value is not None:
        raise keys.error("is_causal", f"{value!r} is neither true nor false")
    if architecture == "MuseGlimmerAssistantModel":
        return (False,) * len(windows)
    return tuple(window is not None for window in windows)


def _taps(keys: _Keys, num_target_layers: int | None) -> tuple[int, ...]:
    """Each names one layer of the target, once, in rising order."""
    taps = keys.get("target_layer_ids")
    if taps is None:
        keys.whole("target_layer_ids", 0)  # raises: the key is missing
    if not isinstance(taps, list) or not taps or any(isinstance(t, bool) or not isinstance(t, int) for t in taps):
        raise keys.error("target_layer_ids", f"{taps!r} is not a list of layer numbers")
    for tap in taps:
        if tap < 0 or (num_target_layers is not None and tap >= num_target_layers):
            raise keys.error(
                "target_layer_ids",
                f"layer {tap} is outside the target's layers 0 to {(num_target_layers or 2**31) - 1}",
            )
    if len(set(taps)) != len(taps) or sorted(taps) != taps:
        raise keys.error("target_layer_ids", f"{taps} is not in rising order without repeats")
    return tuple(taps)


def _conv(keys: _Keys, hidden: int) -> ConvConfig:
    conv = ConvConfig(keys.whole("conv_kernel_size", 1, 64), keys.whole("conv_group_size", 1))
    if hidden % conv.group_size:
        raise keys.error("conv_group_size", f"{conv.group_size} does not divide hidden_size {hidden}")
    return conv


def _selector(keys: _Keys, vocab_size: int | None) -> SelectorConfig:
    if vocab_size is None:
        keys.whole("vocab_size", 1)  # raises: the selector's codebooks need it
    return SelectorConfig(
        keys.whole("selector_rank", 1), keys.whole("selector_top_k", 1, min(cast(int, vocab_size), 1024))
    )


def _softcap(keys: _Keys) -> float | None:
    return None if keys.get("final_logit_softcapping") is None else keys.number("final_logit_softcapping", 1e-6, 1e9)


def _rope_theta(keys: _Keys, raw: Mapping[str, object]) -> float:
    """The one value of all places that have it."""
    found = {"the config": keys.get("rope_theta")}
    for name in ("rope_parameters", "rope_scaling"):
        nested = raw.get(name)
        if not isinstance(nested, Mapping):
            continue
        kind = nested.get("rope_type", nested.get("type", "default"))
        if kind != "default" or nested.get("partial_rotary_factor", 1.0) != 1.0:
            raise UnsupportedError(
                f"{name} is {dict(nested)}: drafters are built with plain rotary positions over the whole head only. "
                "Use a drafter published for DFlash."
            )
        found[name] = nested.get("rope_theta")
    told = {place: value for place, value in found.items() if value is not None}
    if any(value != next(iter(told.values())) for value in told.values()):
        raise keys.error("rope_theta", " and ".join(f"it is {value!r} in {place}" for place, value in told.items()))
    return keys.checked("rope_theta", next(iter(told.values()), None), 1.0, 1e12)


def _quantization(keys: _Keys) -> Mapping[str, object] | None:
    """MLX's own settings, under either name: newer converters write `quantization_config` alone."""
    found = [value for value in map(keys.get, ("quantization", "quantization_config")) if value is not None]
    for value in found:
        if not isinstance(value, Mapping):
            raise keys.error("quantization", f"{value!r} is not a mapping of group_size and bits")
        if any(value.get(key) != cast(Mapping[str, object], found[0]).get(key) for key in ("group_size", "bits")):
            raise keys.error("quantization", f"it is {found[0]!r}, quantization_config {value!r}")
    return cast(Mapping[str, object], found[0]) if found else None


def _refuse_foreign(keys: _Keys, raw: Mapping[str, object]) -> None:
    foreign = raw.get("quantization_config")
    if isinstance(foreign, Mapping) and "quant_method" in foreign:
        raise UnsupportedError(
            f"the drafter is stored as {foreign['quant_method']!r}, which MLX does not read. "
            "Use the bf16 drafter, with --draft-bits 4 to quantise it on load."
        )
    if keys.get("attention_bias"):
        raise keys.error("attention_bias", "drafters have no attention biases, yet it is true")
    if keys.get("hidden_act") not in (None, "silu"):
        raise keys.error("hidden_act", f"{keys.get('hidden_act')!r} is not silu")
