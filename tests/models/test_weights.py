"""Tensors and network must match both ways: nothing missing, nothing left over, nothing of another shape."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from dflash2_mlx.errors import WeightsError
from dflash2_mlx.models.config import DrafterConfig
from dflash2_mlx.models.drafter import DFlashDrafter, build_network, quantize_network
from dflash2_mlx.models.layers import DraftNetwork
from fakes import drafter_config, parameter_names, tiny_drafter, tiny_target

CODEBOOK = "candidate_selector.successor_codebook"


def tensors(config: DrafterConfig) -> dict[str, mx.array]:
    mx.random.seed(0)
    names = tree_flatten(DraftNetwork(config).parameters())
    return {name: mx.random.normal(tensor.shape) * 0.2 for name, tensor in names}


def quantised(config: DrafterConfig, **groups: list[str]) -> dict[str, mx.array]:
    """`tensors` with the layers at the given paths quantised: bits4=[...], bits8=[...]."""
    network = build_network(config, tensors(config))
    for bits, paths in groups.items():
        nn.quantize(
            network, group_size=32, bits=int(bits[-1]), class_predicate=lambda path, _, these=paths: path in these
        )
    return dict(tree_flatten(network.parameters()))


def test_the_published_names_are_the_networks_names():
    names = parameter_names(DraftNetwork(drafter_config()))
    layer = [n for n in names if n.startswith("layers.1.")]
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", CODEBOOK} < set(names)
    assert {"layers.1.attention_conv.base_kernel", "layers.1.mlp_conv.kernel_projection.weight"} < set(layer)
    assert (len(names), len(layer)) == (36, 15)


def test_whole_weights_are_loaded_unchanged():
    weights = tensors(drafter_config())
    network = build_network(drafter_config(), weights)
    loaded = dict(tree_flatten(network.parameters()))
    assert all(mx.array_equal(loaded[name], weights[name]) for name in weights)


@pytest.mark.parametrize("name", ["layers.0.attention_conv.base_kernel", "fc.weight", CODEBOOK])
def test_a_missing_tensor_is_named(name):
    weights = tensors(drafter_config())
    del weights[name]
    with pytest.raises(WeightsError, match=rf"1 missing \({name}\)"):
        build_network(drafter_config(), weights)


def test_an_unknown_tensor_is_named():
    with pytest.raises(WeightsError, match=r"1 unexpected \(embed_tokens.weight\)"):
        build_network(drafter_config(), {**tensors(drafter_config()), "embed_tokens.weight": mx.zeros((2, 2))})


def test_a_renamed_tensor_is_named_on_both_sides():
    weights = tensors(drafter_config())
    weights[f"{CODEBOOK}.weight"] = weights.pop(CODEBOOK)
    with pytest.raises(WeightsError) as caught:
        build_network(drafter_config(), weights)
    assert f"1 missing ({CODEBOOK})" in str(caught.value)
    assert f"1 unexpected ({CODEBOOK}.weight)" in str(caught.value)


def test_a_wrong_shape_is_named_with_both_shapes():
    weights = {**tensors(drafter_config()), "fc.weight": mx.zeros((64, 256))}
    with pytest.raises(WeightsError, match=r"fc.weight has shape \[64, 256\].*\[64, 192\]"):
        build_network(drafter_config(), weights)


def test_many_unknown_tensors_are_counted_and_the_first_few_shown():
    extra = {f"extra.{number}": mx.zeros((1,)) for number in range(9)}
    with pytest.raises(WeightsError, match=r"9 unexpected \(extra.0, .*extra.4, \.\.\.\)"):
        build_network(drafter_config(), {**tensors(drafter_config()), **extra})


def test_convolutions_of_a_dflash_2_drafter_cannot_be_skipped_by_a_dflash_1_config():
    first = drafter_config(architectures=["DFlashDraftModel"])
    with pytest.raises(WeightsError, match="11 unexpected"):
        build_network(first, tensors(drafter_config()))


def test_metas_tensor_names_are_understood():
    config = drafter_config(architectures=["MuseGlimmerAssistantModel"])
    weights = tensors(config)
    weights["encoder.fc.weight"] = weights.pop("fc.weight")
    weights["encoder.output_norm_enc.weight"] = weights.pop("hidden_norm.weight")
    assert mx.array_equal(build_network(config, weights).fc.weight, weights["encoder.fc.weight"])


def test_a_mixed_quantised_drafter_loads_with_each_layers_own_bits():
    eight = "layers.0.mlp.up_proj"
    settings = {"group_size": 32, "bits": 4, eight: {"group_size": 32, "bits": 8}}
    weights = quantised(drafter_config(), bits4=["fc", "layers.1.self_attn.q_proj"], bits8=[eight])
    network = build_network(drafter_config(quantization=settings), weights)
    assert (network.fc.bits, network.layers[0].mlp.up_proj.bits) == (4, 8)
    assert isinstance(network.layers[1].self_attn.q_proj, nn.QuantizedLinear)
    assert not isinstance(network.layers[1].self_attn.k_proj, nn.QuantizedLinear)


def test_a_quantised_drafter_drafts_what_its_dequantised_weights_draft():
    target = tiny_target("qwen3")
    weights = quantised(drafter_config(), bits8=["fc", "layers.0.mlp.up_proj"])
    settings = {"group_size": 32, "bits": 8}
    network = build_network(drafter_config(quantization=settings), weights)
    dense = dict(weights)
    for path in ("fc", "layers.0.mlp.up_proj"):
        packed = [dense.pop(f"{path}.{part}") for part in ("weight", "scales", "biases")]
        dense[f"{path}.weight"] = mx.dequantize(*packed, **settings)
    features = mx.random.normal((12, 192))
    drafts = []
    for built in (network, build_network(drafter_config(), dense)):
        drafter = DFlashDrafter(drafter_config(), built, target.embed, target.head)
        drafter.observe(features, 12)
        drafts.append(drafter.hidden(mx.array([3]), 7))
    assert mx.abs(drafts[0] - drafts[1]).max().item() < 1e-4


def test_packed_weights_without_a_quantization_block_are_refused():
    weights = quantised(drafter_config(), bits4=["fc"])
    with pytest.raises(WeightsError, match="no quantization block"):
        build_network(drafter_config(), weights)


@pytest.mark.parametrize("settings", [{"bits": 4, "group_size": "64"}, {"bits": 7, "group_size": 64}])
def test_a_quantization_block_without_usable_numbers_is_refused(settings):
    with pytest.raises(WeightsError, match="group_size and bits"):
        build_network(drafter_config(quantization=settings), tensors(drafter_config()))


def test_scales_that_miss_their_partner_are_named():
    weights = quantised(drafter_config(), bits4=["fc"])
    del weights["fc.biases"]
    with pytest.raises(WeightsError, match=r"1 missing \(fc.biases\)"):
        build_network(drafter_config(quantization={"group_size": 32, "bits": 4}), weights)


def test_quantising_on_load_leaves_codebooks_norms_and_base_kernels_alone():
    network = build_network(drafter_config(), tensors(drafter_config()))
    before = tensors(drafter_config())
    quantize_network(network, bits=4, group_size=32)
    after = dict(tree_flatten(network.parameters()))
    alone = [n for n in before if n.endswith(("codebook", "norm.weight", "layernorm.weight", "base_kernel"))]
    assert len(alone) == 2 + 2 + 2 * 6
    assert all(mx.array_equal(after[name], before[name]) for name in alone)
    assert {n.removesuffix(".scales") + ".weight" for n in after if n.endswith(".scales")} == set(before) - set(alone)


def test_a_drafter_quantised_to_eight_bits_drafts_nearly_the_same():
    target = tiny_target("qwen3")
    drafter, exact = tiny_drafter(target), tiny_drafter(target)
    quantize_network(drafter.network, bits=8, group_size=32)
    features = mx.random.normal((15, 192))
    for each in (drafter, exact):
        each.observe(features, 15)
    difference = drafter.hidden(mx.array([3]), 7) - exact.hidden(mx.array([3]), 7)
    assert 0 < mx.abs(difference).max().item() < 0.3
