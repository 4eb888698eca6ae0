"""The drafter at work: it is shown target features and proposes the next tokens. Knows mlx and models only."""

from collections.abc import Callable, Mapping

import mlx.core as mx
import mlx.nn as nn

from dflash2_mlx.errors import WeightsError
from dflash2_mlx.models.cache import DraftCache, DraftSnapshot
from dflash2_mlx.models.config import DrafterConfig
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.models.selector import CandidateSelector, Draft, Draw, select

_MUSE_NAMES = {"encoder.fc.": "fc.", "encoder.output_norm_enc.": "hidden_norm."}
_SHOWN_NAMES = 5
_PENDING_ROWS = 256  # more waiting feature rows, and more than can be seen, are taken in without waiting for a block


class DFlashDrafter:
    """Proposes drafts with a DraftNetwork between the target's embedding and its head.

    embed: ids [n] -> raw embedding rows [n, H]. head: hidden [n, H] -> logits [n, V], without a soft cap.
    """

    def __init__(
        self,
        config: DrafterConfig,
        network: DraftNetwork,
        embed: Callable[[mx.array], mx.array],
        head: Callable[[mx.array], mx.array],
    ) -> None:
        self.config = config
        self.network = network
        self._embed, self._head = embed, head
        self._masks = mx.array([config.mask_token_id] * (config.block_size - 1), dtype=mx.int32)  # there at once
        self._dtype = network.hidden_norm.weight.dtype
        self.cache = self.new_cache()

    @property
    def block_size(self) -> int:
        """Rows of the block it was trained with, anchor included."""
        return self.config.block_size

    @property
    def context_rows(self) -> int | None:
        """How many positions before the anchor it can see; None = all."""
        return self.config.context_rows

    def new_cache(self) -> DraftCache:
        """An empty cache for this drafter; `cache` is the one it works on."""
        return DraftCache(self.config.windows)

    def reset(self) -> None:
        """Forget the context."""
        self.cache.clear()

    def snapshot(self) -> DraftSnapshot:
        """The place that the cache is at, with all features that were shown taken in."""
        if self.cache.pending:
            self.network.absorb(self._take_pending(), self.cache.position, self.cache.layers)
        return self.cache.snapshot()

    def observe(self, features: mx.array, end: int) -> None:
        """Show the features [m, taps * H] of the positions `end - m` to `end - 1`.

        A gap before them is allowed where no layer could see into it.
        """
        rows = features.shape[0]
        visible = self.context_rows
        if visible is not None and rows >= visible:
            self.reset()
            features = features[rows - visible :]
        else:
            assert end - rows == self.cache.position, (
                f"features end at {end} with {rows} rows, shown so far: {self.cache.position}"
            )
        self.cache.pending.append(features)
        self.cache.position = end
        if sum(part.shape[0] for part in self.cache.pending) > max(_PENDING_ROWS, visible or 0):
            self.network.absorb(self._take_pending(), end, self.cache.layers)

    def propose(self, anchor: mx.array, count: int, draw: Draw | None = None) -> Draft:
        """A draft of `count` tokens after `anchor` [1], greedy unless a `draw` says how to sample.

        Launched as far as the logits, so that the device works while the rest is built; nothing is awaited.
        """
        assert 1 <= count < self.block_size, f"{count} tokens drafted with block size {self.block_size}"
        hidden = self.hidden(anchor, count)
        logits = self.logits(hidden)
        mx.async_eval(logits)
        return select(self._selector, anchor, logits, hidden, draw)

    def hidden(self, anchor: mx.array, count: int) -> mx.array:
        """Hidden states [count, H] of the rows after the anchor's, after the final norm."""
        context = self._take_pending()
        mx.async_eval(context)
        ids = mx.concatenate([anchor.astype(mx.int32), self._masks[:count]])
        rows = self._embed(ids).astype(self._dtype)
        if self.config.input_embedding_scale != 1.0:
            rows = rows * self.config.input_embedding_scale
        return self.network(rows, context, self.cache.position, self.cache.layers)[1:]

    def logits(self, hidden: mx.array) -> mx.array:
        """Draft logits [n, V] of hidden [n, H]: the target's head, then the drafter's own multiplier and soft cap."""
        logits = self._head(hidden)
        if self.config.output_multiplier != 1.0:
            logits = logits * self.config.output_multiplier
        cap = self.config.softcap
        return logits if cap is None else cap * mx.tanh(logits / cap)

    @property
    def _selector(self) -> CandidateSelector | None:
        return self.network.candidate_selector if self.config.selector else None

    def _take_pending(self) -> mx.array:
        parts, self.cache.pending = self.cache.pending, []
        if not parts:
            return mx.zeros((0, self.config.hidden_size), dtype=self._dtype)
        features = parts[0] if len(parts) == 1 else mx.concatenate(parts)
        return self.network.context_rows(features.astype(self._dtype))


def build_network(config: DrafterConfig, weights: Mapping[str, mx.array]) -> DraftNetwork:
    """The network of `config` holding `weights`, whose names and shapes must match exactly, both ways.

    Raises: WeightsError naming missing, unexpected or wrongly shaped tensors.
    """
    renamed = {_published_name(name): tensor for name, tensor in weights.items()}
    network = DraftNetwork(config)
    if config.quantization:
        _quantize_like(network, config, renamed)
    elif any(name.endswith(".scales") for name in renamed):
        raise WeightsError(
            f"{config.source}: the tensors are quantised but there is no quantization block. Fetch the drafter again."
        )
    expected = dict(_flat(network))
    _check_names(config, set(expected), set(renamed))
    for name, tensor in renamed.items():
        if tuple(tensor.shape) != expected[name]:
            raise WeightsError(
                f"{config.source}: tensor {name} has shape {list(tensor.shape)}, the config asks for "
                f"{list(expected[name])}. The weights belong to another config; fetch the drafter again."
            )
    network.load_weights(list(renamed.items()), strict=True)
    network.eval()
    return network


def quantize_network(network: DraftNetwork, bits: int, group_size: int = 64) -> None:
    """Quantise the linear layers in place; codebooks, norms and base kernels keep their precision."""
    nn.quantize(network, group_size=group_size, bits=bits, class_predicate=lambda _, m: _fits(m, group_size))


def _fits(module: nn.Module, group_size: int) -> bool:
    return isinstance(module, nn.Linear) and module.weight.shape[-1] % group_size == 0


def _quantize_like(network: DraftNetwork, config: DrafterConfig, weights: Mapping[str, mx.array]) -> None:
    """Turn the layers that are stored quantised into quantised ones, with the settings of their own path if given."""
    settings = dict(config.quantization or {})
    group_size, bits = settings.get("group_size", 64), settings.get("bits", 4)
    if not isinstance(group_size, int) or bits not in (2, 3, 4, 5, 6, 8):
        raise WeightsError(
            f"{config.source}: quantization {settings} has no usable group_size and bits. Fetch it again."
        )

    def setting(path: str, module: nn.Module) -> bool | dict[str, object]:
        own = settings.get(path)
        if not isinstance(module, nn.Linear) or f"{path}.scales" not in weights:
            return False
        return dict(own) if isinstance(own, Mapping) else True

    nn.quantize(network, group_size=group_size, bits=bits, class_predicate=setting)


def _flat(network: DraftNetwork) -> list[tuple[str, tuple[int, ...]]]:
    from mlx.utils import tree_flatten

    return [(name, tuple(tensor.shape)) for name, tensor in tree_flatten(network.parameters())]


def _published_name(name: str) -> str:
    for theirs, ours in _MUSE_NAMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name


def _check_names(config: DrafterConfig, expected: set[str], found: set[str]) -> None:
    problems = []
    for word, names in (("missing", expected - found), ("unexpected", found - expected)):
        if names:
            shown = ", ".join(sorted(names)[:_SHOWN_NAMES])
            problems.append(f"{len(names)} {word} ({shown}{', ...' if len(names) > _SHOWN_NAMES else ''})")
    if problems:
        raise WeightsError(
            f"{config.source}: the tensors do not match the config: {' and '.join(problems)}. "
            f"Is this a {config.kind} drafter, fetched whole? Fetch it again."
        )
