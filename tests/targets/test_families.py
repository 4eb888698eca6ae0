"""Only targets whose caches can be cut back exactly are served; the others are refused by name."""

import mlx.core as mx
import pytest
from mlx_lm.utils import _get_classes

from dflash2_mlx.errors import UnsupportedError
from dflash2_mlx.targets.attention import AttentionTarget
from dflash2_mlx.targets.families import build_target, target_family
from dflash2_mlx.targets.hybrid import HybridTarget
from fakes import TARGET_CONFIGS, tiny_model


@pytest.mark.parametrize(
    ("model_type", "family"), [("qwen3_5", HybridTarget), ("qwen3", AttentionTarget), ("llama", AttentionTarget)]
)
def test_a_known_model_type_has_its_family(model_type, family):
    assert target_family(model_type) is family
    assert type(build_target(tiny_model(model_type), model_type)) is family


@pytest.mark.parametrize("model_type", ["mamba2", "nemotron_h", "gemma3", "", None, 7])
def test_an_unknown_model_type_is_refused_by_name_with_the_known_ones(model_type):
    with pytest.raises(UnsupportedError) as caught:
        target_family(model_type)
    assert repr(model_type) in str(caught.value)
    assert "qwen3_5" in str(caught.value)


def test_a_llama_with_sliding_layers_is_refused_by_its_cache():
    types = ["sliding_attention", "full_attention"] * 4
    config = {**TARGET_CONFIGS["llama"], "layer_types": types, "sliding_window": 16}
    model_class, args_class = _get_classes(config)
    with pytest.raises(UnsupportedError, match=r"llama.*RotatingKVCache"):
        build_target(model_class(args_class.from_dict(config)), "llama")


def test_a_target_says_what_its_partner_must_fit():
    target = build_target(tiny_model("qwen3_5"), "qwen3_5")
    assert (target.vocab_size, target.hidden_size, target.num_layers) == (512, 64, 8)
    assert (target.context_limit, target.query_heads_per_kv) == (4096, 2)


def test_a_tied_head_is_the_embedding_table():
    config = {**TARGET_CONFIGS["qwen3"], "tie_word_embeddings": True}
    model_class, args_class = _get_classes(config)
    target = build_target(model_class(args_class.from_dict(config)), "qwen3")
    hidden = mx.random.normal((2, 64))
    assert mx.array_equal(target.head(hidden), hidden @ target.embed(mx.arange(512)).T)
