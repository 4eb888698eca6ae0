"""A target made of mlx-lm layers: the walk over them that all families share.

Knows mlx and mlx-lm's model layout; knows nothing of drafting, sampling or text.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from dflash2_mlx.targets.cache import TargetCache
from dflash2_mlx.targets.limits import CHUNK_ROWS, Pace, rows_within_scores


@dataclass(frozen=True, slots=True)
class Forward:
    """What one forward pass over b rows gives: logits [b, V] and features [b, taps * H] (None without taps)."""

    logits: mx.array
    features: mx.array | None


class LayeredTarget:
    """A target made of mlx-lm layers; families say how one layer is run and how a block is cut back.

    model: what holds `embed_tokens`, `layers` and `norm`. language_model: what holds `args`, `make_cache` and the head.
    taps: layer numbers whose output (the residual stream, before the final norm) becomes the features.
    """

    def __init__(self, language_model: Any, taps: tuple[int, ...] = ()) -> None:
        self._language_model, self._model = language_model, language_model.model
        args = language_model.args
        self.vocab_size: int = args.vocab_size
        self.hidden_size: int = args.hidden_size
        self.num_layers: int = len(self._model.layers)
        self.context_limit: int = args.max_position_embeddings
        self.query_heads_per_kv: int = args.num_attention_heads // args.num_key_value_heads
        self._heads: int = args.num_attention_heads
        self.head_dim: int = getattr(args, "head_dim", None) or args.hidden_size // args.num_attention_heads
        self.taps = taps
        self.pace = Pace()
        self.reset()

    @property
    def module(self) -> nn.Module:
        """The mlx-lm language model that holds the weights."""
        return self._language_model

    @property
    def quantized(self) -> bool:
        """Whether the weights are stored quantised."""
        return any(isinstance(m, nn.QuantizedLinear) for m in self._model.layers[0].modules())

    def embed(self, ids: mx.array) -> mx.array:
        """Raw rows [n, H] of the embedding table."""
        rows: mx.array = self._model.embed_tokens(ids)
        return rows

    def head(self, hidden: mx.array) -> mx.array:
        """Logits [n, V] of hidden rows [n, H] after the final norm."""
        if self._language_model.args.tie_word_embeddings:
            return self._model.embed_tokens.as_linear(hidden)
        return self._language_model.lm_head(hidden)

    def reset(self) -> None:
        """Empty the cache."""
        self.use(self.new_cache())

    @property
    def position(self) -> int:
        """See Target.position."""
        return self.cache.position

    @property
    def _caches(self) -> list[Any]:
        return self.cache.layers

    def new_cache(self) -> TargetCache:
        """An empty cache for this target."""
        return TargetCache(self._make_caches())

    def use(self, cache: TargetCache) -> None:
        """Work on `cache` from now on."""
        self.cache = cache
        self._block_rows = 0

    def prefill(
        self, tokens: Sequence[int], *, chunk: int | None, keep: int | None
    ) -> Iterator[tuple[int, mx.array | None]]:
        """See Target.prefill. Evaluates every chunk, so memory does not grow with the prompt."""
        assert self._block_rows == 0, "a verified block was not committed"
        done, total = 0, len(tokens)
        most = chunk or max(CHUNK_ROWS, self.pace.least)
        while done < total:
            end = min(total, done + self.rows_at_once(most, self.position + most))
            began = time.perf_counter()
            hidden, features = self._run(mx.array(list(tokens[done:end])), keep=keep)
            # without features the last layer's output must be evaluated too, or the graph would grow
            mx.eval(hidden[-1:], [] if features is None else features, [layer.state for layer in self._caches])
            self.pace.record(end - done, time.perf_counter() - began)
            mx.clear_cache()
            self.cache.position += end - done
            done = end
            yield done, features

    def rows_at_once(self, rows: int, depth: int) -> int:
        """See Target.rows_at_once."""
        return min(rows_within_scores(rows, self._heads, depth, self.pace.least), self.pace.rows)

    def enter(self, tokens: Sequence[int], *, keep: int | None) -> Forward:
        """See Target.enter."""
        assert self._block_rows == 0, "a verified block was not committed"
        hidden, features = self._run(mx.array(list(tokens)), keep=keep)
        self.cache.position += len(tokens)
        return Forward(self._logits(self._model.norm(hidden[-1:])), features)

    def verify(self, block: mx.array) -> Forward:
        """See Target.verify."""
        assert self._block_rows == 0, "a verified block was not committed"
        self._block_rows = block.shape[0]
        hidden, features = self._run(block, keep=None, reversible=True)
        return Forward(self._logits(self._model.norm(hidden)), features)

    def commit(self, rows: int) -> None:
        """See Target.commit."""
        assert 0 <= rows <= self._block_rows
        if rows < self._block_rows:
            self._cut(rows, self._block_rows)
        self.cache.position += rows
        self._block_rows = 0

    def _run(self, ids: mx.array, *, keep: int | None, reversible: bool = False) -> tuple[mx.array, mx.array | None]:
        """Hidden rows [n, H] before the final norm; features [m, taps * H] of the last `keep` rows, of all if None."""
        hidden = self._enter(ids[None])
        outputs = {}
        masks = self._masks(hidden)
        for number, (layer, cache) in enumerate(zip(self._model.layers, self._caches, strict=True)):
            hidden = self._layer(layer, hidden, cache, masks, reversible)
            if ids.shape[0] > 1:  # the device computes this layer while the next one's graph is built: not for one row
                mx.async_eval(hidden)
            if number in self.taps and keep != 0:
                outputs[number] = hidden if keep is None else hidden[:, -keep:]
        features = mx.concatenate([outputs[tap] for tap in self.taps], axis=-1) if outputs else None
        # squeezing is a view, indexing with [0] would copy
        return hidden.squeeze(0), None if features is None else features.squeeze(0)

    def _make_caches(self) -> list[Any]:
        from mlx_lm.models.cache import make_prompt_cache

        caches: list[Any] = make_prompt_cache(self._language_model)
        return caches

    def _enter(self, ids: mx.array) -> mx.array:
        """What the first layer is given for ids [1, n]."""
        rows: mx.array = self._model.embed_tokens(ids)
        return rows

    def _logits(self, hidden: mx.array) -> mx.array:
        """The target's own logits [n, V] of hidden rows [n, H] after the final norm."""
        return self.head(hidden)

    def _masks(self, hidden: mx.array) -> Any:
        """The attention mask, or masks, that `_layer` needs for these rows [1, n, H]."""
        raise NotImplementedError

    def _layer(self, layer: Any, hidden: mx.array, cache: Any, masks: Any, reversible: bool) -> mx.array:
        """One layer's output [1, n, H]; `reversible`: remember what `_cut` needs."""
        raise NotImplementedError

    def _cut(self, rows: int, block: int) -> None:
        """Undo all but the first `rows` of the `block` rows just run."""
        raise NotImplementedError
