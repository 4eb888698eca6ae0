"""A target's features and logits against mlx-lm's own forward pass, bit for bit."""

from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.targets.families import build_target
from fakes import TAPS, tiny_model

FAMILIES = ["qwen3_5", "qwen3", "llama"]
PROMPT = [(7 * i + 3) % 512 for i in range(20)]
BLOCK = [5, 400, 17, 17, 230, 99, 0, 511]


class Recorder:
    """Stands in for one layer of an mlx-lm model and keeps what comes out of it."""

    def __init__(self, layer: Any) -> None:
        self._layer, self.outputs = layer, []

    def __call__(self, *args: Any, **options: Any) -> mx.array:
        self.outputs.append(self._layer(*args, **options))
        return self.outputs[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def recorded(model: Any) -> list[Recorder]:
    """The layers of an mlx-lm model, each replaced in this instance by its recorder."""
    inner = getattr(model, "language_model", model).model
    inner.layers = [Recorder(layer) for layer in inner.layers]
    return inner.layers


def ready(model_type: str, taps: tuple[int, ...] = TAPS) -> LayeredTarget:
    """A target with PROMPT in its cache."""
    target = build_target(tiny_model(model_type), model_type, taps)
    list(target.prefill(PROMPT, chunk=2048, keep=0))
    return target


OTHER_TAPS = [pytest.param(taps, marks=pytest.mark.slow) for taps in ((0, 7), (7,), tuple(range(8)))]


@pytest.mark.parametrize("taps", [TAPS, *OTHER_TAPS], ids=str)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_features_are_the_tapped_layers_outputs_before_the_final_norm(model_type, taps):
    model, target = tiny_model(model_type), ready(model_type, taps)
    layers, cache = recorded(model), make_prompt_cache(model)
    model(mx.array([PROMPT]), cache=cache)
    model(mx.array([BLOCK]), cache=cache)
    features = target.verify(mx.array(BLOCK)).features
    expected = mx.concatenate([layers[tap].outputs[1][0] for tap in taps], axis=-1)
    assert features.shape == (len(BLOCK), 64 * len(taps))
    assert mx.array_equal(features, expected)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_features_of_a_prompt_are_those_of_one_whole_forward_pass(model_type):
    model, target = tiny_model(model_type), build_target(tiny_model(model_type), model_type, TAPS)
    layers = recorded(model)
    model(mx.array([PROMPT]), cache=make_prompt_cache(model))
    ((done, features),) = target.prefill(PROMPT, chunk=2048, keep=None)
    assert done == target.position == len(PROMPT)
    assert mx.array_equal(features, mx.concatenate([layers[tap].outputs[0][0] for tap in TAPS], axis=-1))


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_verified_logits_are_those_of_the_models_own_forward_pass(model_type, rows):
    model, target = tiny_model(model_type), ready(model_type)
    cache = make_prompt_cache(model)
    model(mx.array([PROMPT]), cache=cache)
    expected = model(mx.array([BLOCK[:rows]]), cache=cache)[0]
    assert mx.array_equal(target.verify(mx.array(BLOCK[:rows])).logits, expected)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_verified_block_has_the_logits_of_single_steps(model_type):
    target, single = ready(model_type), ready(model_type)
    together = target.verify(mx.array(BLOCK)).logits
    for row, token in enumerate(BLOCK):
        assert mx.array_equal(single.verify(mx.array([token])).logits[0], together[row])
        single.commit(1)


def test_a_target_without_taps_gives_logits_and_no_features():
    target = ready("qwen3", taps=())
    forward = target.verify(mx.array(BLOCK))
    assert forward.features is None
    assert forward.logits.shape == (8, 512)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_embedding_and_head_are_the_models_own_without_a_copy(model_type):
    target, ids = build_target(tiny_model(model_type), model_type, TAPS), mx.array([3, 500])
    inner = target._model
    assert mx.array_equal(target.embed(ids), inner.embed_tokens.weight[ids])
    hidden = mx.random.normal((2, 64))
    assert mx.array_equal(target.head(hidden), hidden @ target._language_model.lm_head.weight.T)


def test_a_quantised_target_is_noticed_and_its_head_stays_quantised():
    target = build_target(tiny_model("qwen3", bits=8), "qwen3", TAPS)
    assert target.quantized
    assert not ready("qwen3").quantized
    assert target.head(mx.ones((1, 64))).shape == (1, 512)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_no_class_of_mlx_lm_is_patched(model_type):
    layer = type(getattr(tiny_model(model_type), "language_model", tiny_model(model_type)).model.layers[0])
    before = dict(vars(layer))
    target = ready(model_type)
    mx.eval(target.verify(mx.array(BLOCK)).logits)
    target.commit(3)
    assert dict(vars(layer)) == before
