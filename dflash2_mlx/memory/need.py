"""How much memory a pair takes at a given context, from its configs, and whether a machine has it. Knows no MLX.

The parts mirror what the package allocates: mlx-lm's caches, WindowCache, ContextCache, the states kept for rollback.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from dflash2_mlx.config import STORED_BITS
from dflash2_mlx.errors import ConfigError
from dflash2_mlx.models.config import SPARE_ROWS, DrafterConfig
from dflash2_mlx.targets import limits

Word = Literal["fits", "tight", "does not fit"]
TIGHT_SHARE = 0.9  # of the limit: above it the system has little left, and weights are not wired

_GIB, _MIB = 2**30, 2**20
_GROUP = 64  # weights that share a scale and a bias


@dataclass(frozen=True, slots=True)
class TargetShape:
    """What of a target decides its memory.

    full_layers keep every token, window_layers those of a window; both store `row_bytes` a token. weight_bytes: None
    where the config does not tell. state_bytes: of all recurrent layers, conv_channels: of the convolution in one, 0
    without such layers. element_bytes: of an activation.
    """

    weight_bytes: int | None
    full_layers: int
    window_layers: int
    window: int
    row_bytes: int
    state_bytes: int
    conv_channels: int
    hidden_size: int
    intermediate_size: int
    heads: int
    head_dim: int
    vocab_size: int
    context_limit: int
    element_bytes: int
    quantized: bool


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes by part. The order is the one in which people read them."""

    target: int
    drafter: int
    kv: int
    state: int
    features: int
    draft_kv: int
    logits: int
    prefill: int

    @property
    def total(self) -> int:
        """All parts."""
        return sum(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, slots=True)
class Stored:
    """The weights in a model's files: bytes of the tensors that are loaded, and of one number of an activation."""

    weight_bytes: int
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A pair and how it is to run. drafter None: plain decoding. draft_bits: 4, 8 or 16 (as stored).

    draft_stored: the drafter's files, None where they are not there; published drafters are bf16.
    """

    target: TargetShape
    drafter: DrafterConfig | None
    context: int
    draft_bits: int = STORED_BITS
    draft_stored: Stored | None = None

    def drafter_bytes(self, bits: int) -> int:
        """Bytes of the drafter's weights in `bits`."""
        return drafter_bytes(self.drafter, bits, self.draft_stored) if self.drafter else 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """largest_context: the longest that fits (tight included), 0 = none. remedies: what would make it fit."""

    word: Word
    share: float
    largest_context: int
    remedies: tuple[str, ...]


def target_shape(config: Mapping[str, object], source: str, stored: Stored | None = None) -> TargetShape:
    """The shape of the target described by `config`, and by its files where they are there.

    Raises: ConfigError for a missing key.
    """
    keys = _Keys(config, source)
    layers, hidden, heads = (keys.whole(k) for k in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    kv_heads = keys.whole("num_key_value_heads", heads)
    head_dim = keys.whole("head_dim", hidden // heads)
    element = 4 if "float32" in (keys.get("dtype"), keys.get("torch_dtype")) else 2
    element = stored.element_bytes if stored else element
    full, sliding, recurrent = _layer_kinds(keys, layers)
    return TargetShape(
        weight_bytes=stored.weight_bytes
        if stored
        else _weight_bytes(keys, full + sliding, recurrent, head_dim * heads),
        full_layers=full,
        window_layers=sliding,
        window=keys.whole("sliding_window") if sliding else 0,
        row_bytes=2 * kv_heads * head_dim * element,
        state_bytes=recurrent * _state_bytes(keys, element) if recurrent else 0,
        conv_channels=_conv_channels(keys) if recurrent else 0,
        hidden_size=hidden,
        intermediate_size=keys.whole("intermediate_size", keys.whole("moe_intermediate_size", hidden)),
        heads=heads,
        head_dim=head_dim,
        vocab_size=keys.whole("vocab_size"),
        context_limit=keys.whole("max_position_embeddings"),
        element_bytes=element,
        quantized=_quantization(keys) is not None,
    )


def drafter_bytes(config: DrafterConfig, bits: int = STORED_BITS, stored: Stored | None = None) -> int:
    """Bytes of the drafter's weights: linear layers in `bits`; codebooks, norms and base kernels as stored."""
    if stored and (bits == STORED_BITS or config.quantization):
        return stored.weight_bytes
    element = stored.element_bytes if stored else 2
    hidden, width = config.hidden_size, config.num_heads * config.head_dim
    attention = 2 * hidden * width + 2 * hidden * config.num_kv_heads * config.head_dim
    linear = attention + 3 * hidden * config.intermediate_size
    plain = 2 * hidden + 2 * config.head_dim
    if config.conv:
        groups = hidden // config.conv.group_size
        linear += 2 * 2 * config.conv.kernel_size * groups * hidden
        plain += 2 * 2 * config.conv.kernel_size * hidden
    layers = len(config.windows)
    linear = layers * linear + len(config.target_layer_ids) * hidden * hidden
    plain = layers * plain + 2 * hidden
    if config.selector:
        linear += config.selector.rank * hidden
        plain += 2 * (config.vocab_size or 0) * config.selector.rank
    own = config.quantization.get("bits") if config.quantization else None
    return _linear_bytes(linear, own if isinstance(own, int) else bits, element) + element * plain


def memory_need(plan: Plan) -> Need:
    """What the pair takes at most while `plan.context` tokens, prompt and answer together, are in the cache."""
    target, drafter, context = plan.target, plan.drafter, plan.context
    kept = _rounded(context)
    window_rows = 2 * target.window + limits.SPARE_ROWS
    rows = drafter.block_size if drafter else 1
    return Need(
        target=target.weight_bytes or 0,
        drafter=plan.drafter_bytes(plan.draft_bits),
        kv=target.row_bytes * (target.full_layers * kept + target.window_layers * window_rows),
        state=target.state_bytes * (2 if drafter else 1),
        features=_feature_rows(drafter, context) * feature_bytes(drafter, target) if drafter else 0,
        draft_kv=_draft_kv_bytes(plan, drafter) if drafter else 0,
        logits=rows * target.vocab_size * 4 * (2 if drafter else 1),
        prefill=_prefill_bytes(target, context),
    )


def feature_bytes(drafter: DrafterConfig, target: TargetShape) -> int:
    """Bytes of one token's features."""
    return len(drafter.target_layer_ids) * target.hidden_size * target.element_bytes


def judge(plan: Plan, limit_bytes: int) -> Verdict:
    """Whether `plan` fits into `limit_bytes`, and what would make it."""
    share = memory_need(plan).total / limit_bytes
    word: Word = "fits" if share <= TIGHT_SHARE else "tight" if share <= 1 else "does not fit"
    largest = largest_context(plan, limit_bytes)
    return Verdict(word, share, largest, () if word == "fits" else _remedies(plan, limit_bytes, largest))


def largest_context(plan: Plan, limit_bytes: int) -> int:
    """The longest context, in steps of 256 tokens, whose need is within the limit; 0 = none."""
    low, high = 0, max(1, plan.target.context_limit // limits.CACHE_STEP)
    while low < high:
        middle = (low + high + 1) // 2
        fits = memory_need(replace(plan, context=middle * limits.CACHE_STEP)).total <= limit_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    return min(low * limits.CACHE_STEP, plan.target.context_limit)


def binary_size(count: int) -> str:
    """Bytes as memory is told: 2^30 a GiB."""
    return f"{count / _GIB:.2f} GiB" if count >= _GIB / 10 else f"{count / _MIB:.1f} MiB"


def _remedies(plan: Plan, limit_bytes: int, largest: int) -> tuple[str, ...]:
    """Changes of the same pair that fit, the one that costs least first."""

    def fits(changed: Plan) -> bool:
        return memory_need(changed).total <= limit_bytes * (TIGHT_SHARE if largest >= plan.context else 1)

    found = []
    smaller = replace(plan, draft_bits=4)
    can_shrink = plan.drafter is not None and plan.draft_bits > 4 and plan.drafter.quantization is None
    if can_shrink and fits(smaller):
        found.append("quantise the drafter: --draft-bits 4")
    if 0 < largest < plan.context:
        found.append(f"a shorter context: at most {largest} tokens, prompt and answer together")
    if plan.drafter is not None and fits(replace(plan, drafter=None)):
        found.append("do without the drafter, at plain speed: --no-draft")
    elif plan.drafter is not None and not largest:
        plain = largest_context(replace(plan, drafter=None), limit_bytes)
        if plain:
            found.append(f"do without the drafter, at plain speed: --no-draft, with at most {plain} tokens of context")
    return tuple(found)


def _feature_rows(drafter: DrafterConfig, context: int) -> int:
    """Rows kept at a time: what the drafter can see, or a chunk where it sees everything."""
    return min(context, limits.CHUNK_ROWS if drafter.context_rows is None else drafter.context_rows)


def _draft_kv_bytes(plan: Plan, drafter: DrafterConfig) -> int:
    row = 2 * drafter.num_kv_heads * drafter.head_dim * (plan.draft_stored.element_bytes if plan.draft_stored else 2)
    rows, context = 0, plan.context
    for window in drafter.windows:
        if window is None:
            rows += 2 * (context + drafter.block_size) + SPARE_ROWS
        else:
            rows += 2 * (window - 1) + min(context, window - 1) + drafter.block_size + SPARE_ROWS
    return row * rows


def _prefill_bytes(target: TargetShape, context: int) -> int:
    """Activations of the layers that are queued, and scores, of the last prefill pass, the deepest one.

    A chip whose fused attention begins at 1,024 rows runs twice the rows and keeps no scores: less, past a few thousand
    tokens.
    """
    rows = limits.rows_within_scores(min(limits.CHUNK_ROWS, context), target.heads, context)
    widths = 3 * target.intermediate_size + 4 * target.hidden_size + 3 * target.conv_channels
    activations = limits.QUEUED_LAYERS * rows * widths * target.element_bytes
    if target.head_dim in limits.FUSED_HEADS:
        return activations
    return activations + 2 * target.heads * rows * context * target.element_bytes  # before and after the softmax


def _layer_kinds(keys: "_Keys", layers: int) -> tuple[int, int, int]:
    """How many layers have full attention, a window, a recurrent state."""
    interval = keys.get("full_attention_interval")
    types = keys.get("layer_types")
    if keys.model_type == "muse_glimmer" and not isinstance(types, list):
        types = [("full_attention" if (i + 1) % 4 == 0 else "sliding_attention") for i in range(layers)]
    if keys.get("linear_num_value_heads") is not None:
        full = layers // interval if isinstance(interval, int) and interval > 0 else layers // 4
        return full, 0, layers - full
    sliding = sum(kind == "sliding_attention" for kind in types) if isinstance(types, list) else 0
    return layers - sliding, sliding, 0


def _conv_channels(keys: "_Keys") -> int:
    """Channels of a gated-delta layer's convolution: queries, keys and values."""
    key_width = keys.whole("linear_num_key_heads") * keys.whole("linear_key_head_dim")
    return 2 * key_width + keys.whole("linear_num_value_heads") * keys.whole("linear_value_head_dim")


def _state_bytes(keys: "_Keys", element: int) -> int:
    """Bytes of one gated-delta layer: its state in float32 and the rows its convolution looks back on."""
    state = keys.whole("linear_num_value_heads") * keys.whole("linear_value_head_dim")
    state *= keys.whole("linear_key_head_dim")
    return 4 * state + (keys.whole("linear_conv_kernel_dim") - 1) * _conv_channels(keys) * element


def _weight_bytes(keys: "_Keys", attention: int, recurrent: int, width: int) -> int | None:
    """Bytes of the text weights of a dense model, as mlx-lm stores them; None for experts and unknown kinds."""
    kind = keys.model_type
    if keys.get("num_experts") or kind not in ("qwen3", "qwen3_5", "llama", "muse_glimmer"):
        return None
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    kv_width = width // heads * keys.whole("num_key_value_heads", heads)
    gated = kind in ("qwen3_5", "muse_glimmer")  # a second projection of the queries' size
    linear = attention * hidden * ((3 if gated else 2) * width + 2 * kv_width)
    plain = attention * (2 * width // heads if kind in ("qwen3", "qwen3_5") else 0)
    if recurrent:
        values = keys.whole("linear_num_value_heads")
        value_dim = values * keys.whole("linear_value_head_dim")
        channels = _conv_channels(keys)
        linear += recurrent * hidden * (channels + 2 * value_dim + 2 * values)
        kernel = keys.whole("linear_conv_kernel_dim") * channels
        plain += recurrent * (kernel + 2 * values + keys.whole("linear_value_head_dim"))
    layers = attention + recurrent
    linear += layers * 3 * hidden * keys.whole("intermediate_size")
    plain += layers * hidden * (4 if kind == "muse_glimmer" else 2) + hidden
    linear += keys.whole("vocab_size") * hidden * (1 if keys.get("tie_word_embeddings") else 2)
    quantization = _quantization(keys)
    return _linear_bytes(linear, quantization or STORED_BITS) + 2 * plain


def _quantization(keys: "_Keys") -> int | None:
    """Bits of a quantised target's linear layers."""
    for name in ("quantization", "quantization_config"):
        block = keys.outer.get(name)
        bits = block.get("bits") if isinstance(block, Mapping) else None
        if isinstance(bits, int):
            return bits
    return None


def _linear_bytes(weights: int, bits: int, element: int = 2) -> int:
    return element * weights if bits >= STORED_BITS else weights * bits // 8 + 2 * element * weights // _GROUP


def _rounded(rows: int) -> int:
    return -(-rows // limits.CACHE_STEP) * limits.CACHE_STEP


class _Keys:
    """Access to a config whose text part may be nested."""

    def __init__(self, config: Mapping[str, object], source: str) -> None:
        text = config.get("text_config")
        self.outer, self._source = config, source
        self._text = text if isinstance(text, Mapping) else config
        self.model_type = str(config.get("model_type"))

    def get(self, key: str, default: object = None) -> object:
        value = self._text.get(key)
        return default if value is None else value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ConfigError(f"{self._source}: {key} is {value!r}, not a whole number above 0. Fetch it again.")
        return value
