"""What a drafter's config.json may say. Nothing is guessed: a missing or impossible value is refused by name."""

import copy

import pytest

from dflash2_mlx.errors import ConfigError, UnsupportedError
from dflash2_mlx.models.config import DrafterConfig, parse_drafter_config
from fakes import DRAFTER_CONFIG

SOURCE = "some/folder/config.json"
DFLASH1_KEYS = ("selector_rank", "selector_top_k", "conv_kernel_size", "conv_group_size")


def config(*, without: tuple[str, ...] = (), **changes: object) -> dict[str, object]:
    """DRAFTER_CONFIG with keys replaced or removed, wherever it keeps them."""
    raw = copy.deepcopy(DRAFTER_CONFIG)
    for key in without:
        raw.pop(key, None)
        raw.get("dflash_config", {}).pop(key, None)
    for key, value in changes.items():
        (raw["dflash_config"] if key in raw.get("dflash_config", {}) else raw)[key] = value
    return raw


def parsed(**changes: object) -> DrafterConfig:
    return parse_drafter_config(config(**changes), SOURCE)


def refused(match: str, **changes: object) -> str:
    with pytest.raises(ConfigError, match=match) as caught:
        parsed(**changes)
    assert SOURCE in str(caught.value)
    return str(caught.value)


def test_the_published_shape_is_understood():
    drafter = parsed()
    assert (drafter.kind, drafter.block_size, drafter.target_layer_ids) == ("DFlash 2", 8, (1, 3, 6))
    assert (drafter.windows, drafter.causal, drafter.context_rows) == ((16, 16), (False, False), 15)


@pytest.mark.parametrize("key", ["target_layer_ids", "mask_token_id", "block_size", *DFLASH1_KEYS])
def test_a_missing_dflash_key_is_refused_by_name_and_never_invented(key):
    message = refused(f"lacks {key}", without=(key,))
    assert "DFlash drafter" in message


def test_a_missing_dflash_config_is_refused():
    refused("lacks block_size .in dflash_config", without=("dflash_config",))


@pytest.mark.parametrize(
    "key",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size"],
)
def test_a_missing_size_is_refused_by_name(key):
    refused(f"lacks {key}", without=(key,))


@pytest.mark.parametrize("key", ["rms_norm_eps", "vocab_size"])
def test_a_missing_number_is_refused_by_name(key):
    refused(key, without=(key,))


def test_a_dflash_config_that_is_no_mapping_is_refused():
    refused("dflash_config is 7", without=("dflash_config",), dflash_config=7)


def test_a_tap_equal_to_the_layer_count_is_refused_with_both_numbers():
    message = refused("target_layer_ids", target_layer_ids=[1, 3, 5, 8])
    assert "layer 8" in message
    assert "0 to 7" in message


@pytest.mark.parametrize("taps", [[-1, 3], [3, 3, 6], [6, 3, 1], [], "1,3", [1.0, 3.0], [True, 3], [1, None]])
def test_taps_that_do_not_name_rising_layers_once_each_are_refused(taps):
    refused("target_layer_ids", target_layer_ids=taps)


def test_the_last_target_layer_may_be_tapped():
    assert parsed(target_layer_ids=[0, 7]).target_layer_ids == (0, 7)


@pytest.mark.parametrize("mask", [512, 10**6, -1])
def test_a_mask_token_outside_the_vocabulary_is_refused(mask):
    refused("mask_token_id", mask_token_id=mask)


def test_the_last_token_of_the_vocabulary_may_be_the_mask():
    assert parsed(mask_token_id=511).mask_token_id == 511


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "64"),
        ("hidden_size", True),
        ("num_hidden_layers", 2.0),
        ("num_hidden_layers", 0),
        ("block_size", True),
        ("block_size", 1),
        ("block_size", 65),
        ("mask_token_id", 500.0),
        ("vocab_size", "512"),
        ("selector_top_k", False),
        ("selector_top_k", 513),
        ("selector_rank", 0),
        ("rms_norm_eps", True),
        ("rms_norm_eps", float("nan")),
        ("output_multiplier", "0.2"),
        ("final_logit_softcapping", 0),
        ("is_causal", "false"),
        ("is_causal", 0),
        ("quantization", 4),
        ("sliding_window", None),
        ("attention_bias", True),
        ("hidden_act", "gelu"),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_by_name(key, value):
    refused(key, **{key: value})


def test_a_group_size_that_does_not_divide_the_hidden_size_is_refused():
    message = refused("conv_group_size", conv_group_size=24)
    assert "24 does not divide hidden_size 64" in message


def test_kv_heads_that_do_not_divide_the_heads_are_refused():
    refused("num_key_value_heads", num_key_value_heads=3)


@pytest.mark.parametrize("types", [["sliding_attention"], ["sliding_attention"] * 3, "sliding_attention", []])
def test_layer_types_must_name_every_layer(types):
    refused("each of the 2 layers", layer_types=types)


def test_an_unknown_layer_type_is_refused_by_name():
    refused("'linear_attention'", layer_types=["full_attention", "linear_attention"])


def test_a_window_smaller_than_the_block_is_refused_with_both_numbers():
    assert "7 is smaller than block_size 8" in refused("sliding_window", sliding_window=7)
    assert parsed(sliding_window=8).windows == (8, 8)


def test_full_attention_layers_have_no_window_and_see_all_rows():
    mixed = parsed(layer_types=["full_attention", "sliding_attention"])
    assert (mixed.windows, mixed.context_rows) == ((None, 16), None)


def test_missing_causality_means_causal_in_sliding_layers_only():
    types = ["full_attention", "sliding_attention"]
    assert parsed(without=("is_causal",), layer_types=types).causal == (False, True)
    assert parsed(is_causal=True, layer_types=types).causal == (True, True)
    assert parsed(is_causal=False, layer_types=types).causal == (False, False)


def test_metas_drafters_are_never_causal_unless_they_say_so():
    missing = parsed(without=("is_causal", *DFLASH1_KEYS), architectures=["MuseGlimmerAssistantModel"])
    assert (missing.causal, missing.kind) == ((False, False), "DFlash 1")


@pytest.mark.parametrize(
    "place",
    [
        {"rope_theta": 5e5},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
        {"rope_scaling": {"rope_theta": 5e5, "type": "default"}},
        {"rope_theta": 5e5, "rope_scaling": None},
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default"}},
    ],
)
def test_rope_theta_is_found_in_each_of_its_places(place):
    assert parse_drafter_config({**config(without=("rope_parameters",)), **place}, SOURCE).rope_theta == 5e5


def test_a_missing_rope_theta_is_refused():
    refused("rope_theta", without=("rope_parameters",))


@pytest.mark.parametrize("rope", [{"rope_type": "yarn", "factor": 4.0}, {"partial_rotary_factor": 0.25}])
def test_rotary_positions_that_are_not_built_are_refused(rope):
    with pytest.raises(UnsupportedError, match="plain rotary"):
        parsed(rope_parameters={"rope_theta": 1e4, **rope})


@pytest.mark.parametrize("method", ["compressed-tensors", "awq", "gptq", "fp8"])
def test_a_foreign_quantisation_is_refused_by_its_name_with_the_way_out(method):
    with pytest.raises(UnsupportedError, match=f"'{method}'.*--draft-bits"):
        parsed(quantization_config={"quant_method": method})


def test_mlx_own_quantization_config_is_not_foreign():
    settings = {"group_size": 64, "bits": 4}
    assert parsed(quantization=settings, quantization_config=settings).quantization == settings


def test_mlx_own_quantization_may_stand_under_the_other_name_alone_and_not_twice_with_other_bits():
    settings = {"group_size": 64, "bits": 4}
    assert parsed(quantization_config=settings).quantization == settings
    refused("quantization", quantization=settings, quantization_config={**settings, "bits": 8})
    refused("quantization", quantization_config="4 bits")


@pytest.mark.parametrize(
    ("key", "nested", "top"),
    [("block_size", 8, 16), ("target_layer_ids", [1, 3, 6], [1, 3, 5]), ("mask_token_id", 511, 510)],
)
def test_two_values_for_one_key_are_refused_with_both_and_the_same_twice_is_one(key, nested, top):
    raw = config(**{key: nested})
    assert parse_drafter_config({**raw, key: nested}, SOURCE) == parse_drafter_config(raw, SOURCE)
    with pytest.raises(ConfigError, match=key) as caught:
        parse_drafter_config({**raw, key: top}, SOURCE)
    assert str(nested) in str(caught.value) and str(top) in str(caught.value)


@pytest.mark.parametrize(
    "places", [("rope_theta", "rope_parameters"), ("rope_parameters", "rope_scaling"), ("rope_theta", "rope_scaling")]
)
def test_two_values_of_rope_theta_are_refused_with_both_and_the_same_twice_is_one(places):
    def written(*values):
        found = {
            place: value if place == "rope_theta" else {"rope_theta": value}
            for place, value in zip(places, values, strict=True)
        }
        return parse_drafter_config({**config(without=("rope_parameters",)), **found}, SOURCE)

    assert written(5e5, 5e5).rope_theta == 5e5
    with pytest.raises(ConfigError, match=r"rope_theta.*10000.0.*500.0"):
        written(1e4, 500.0)


@pytest.mark.parametrize("names", [["Qwen3ForCausalLM"], [], None, "DFlash2DraftModel"])
def test_a_config_that_is_no_drafter_says_which_flag_takes_which(names):
    message = refused("architectures", architectures=names)
    assert "--draft" in message
    assert "--model" in message


def test_keys_at_top_level_mean_the_same_as_in_dflash_config():
    raw = config(without=("dflash_config",))
    assert parse_drafter_config({**raw, **DRAFTER_CONFIG["dflash_config"]}, SOURCE) == parsed()
