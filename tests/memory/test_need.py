"""What a pair needs: against the published figures, against what the package really allocates, and verdicts."""

import gc
from dataclasses import fields, replace

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from dflash2_mlx.errors import ConfigError
from dflash2_mlx.memory import need as fit
from dflash2_mlx.memory.need import Plan, Stored, drafter_bytes, judge, memory_need, target_shape
from dflash2_mlx.models.drafter import quantize_network
from dflash2_mlx.models.layers import DraftNetwork
from dflash2_mlx.store.published import published_drafter, published_target
from dflash2_mlx.targets import sliding
from dflash2_mlx.targets.limits import CHUNK_ROWS, SMALLEST_CHUNK, Pace
from fakes import TARGET_CONFIGS, tiny_drafter, tiny_model, tiny_target

QWEN, MUSE = "mlx-community/Qwen3.8-27B-", "mlx-community/Muse-Glimmer-30B-"
QWEN_DRAFT, MUSE_DRAFT = "z-lab/Qwen3.8-27B-DFlash2@50307d4", "z-lab/Muse-Glimmer-30B-DFlash2"
GIB = 2**30


def plan(target=f"{QWEN}4bit", drafter=QWEN_DRAFT, context=8192, bits=4):
    shape = target_shape(published_target(target), target)
    return Plan(shape, published_drafter(drafter) if drafter else None, context, bits)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (f"{QWEN}4bit@3e6447f", 15_132_802_048),
        (f"{QWEN}bf16", 53_791_996_928),
        (f"{MUSE}4bit", 15_670_313_984),
        (f"{MUSE}bf16", 55_709_561_856),
    ],
)
def test_the_weights_of_a_published_target_are_counted_to_the_byte(name, size):
    assert plan(name).target.weight_bytes == size


def test_the_published_figures_of_qwen_3_8_come_out():
    wanted = plan(context=32768)
    need, drafter = memory_need(wanted), wanted.drafter
    assert need.kv == 2 * GIB and wanted.target.row_bytes * wanted.target.full_layers == 64 * 1024
    assert 2 * 150_994_944 <= need.state <= 2 * 155_000_000
    assert fit.feature_bytes(drafter, wanted.target) == 51_200 and need.features == 51_200 * 2047
    assert drafter_bytes(drafter) == 2 * 1_924_404_480 and need.drafter == pytest.approx(1.1e9, rel=0.2)
    assert need.total == sum(getattr(need, part.name) for part in fields(need))


def test_a_drafter_of_either_method_is_counted_to_the_byte():
    assert drafter_bytes(published_drafter(MUSE_DRAFT)) == 2 * 2_772_159_744
    assert drafter_bytes(published_drafter("meta-models/Muse-Glimmer-30B-assistant")) == pytest.approx(
        2 * 2.56e9, rel=0.01
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_a_drafter_quantised_on_load_takes_what_is_said(bits):
    config = published_drafter(QWEN_DRAFT)
    network = DraftNetwork(config)  # lazy: nothing of it is ever evaluated
    network.set_dtype(mx.bfloat16)
    quantize_network(network, bits)
    assert drafter_bytes(config, bits) == sum(tensor.nbytes for _, tensor in tree_flatten(network.parameters()))


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_5", "llama"])
@pytest.mark.parametrize("bits", [None, 4, 8])
def test_the_weights_of_every_family_are_counted_from_the_config(kind, bits):
    model = tiny_model(kind)
    model.set_dtype(mx.bfloat16)
    config = dict(TARGET_CONFIGS[kind])
    if bits:
        nn.quantize(model, group_size=32, bits=bits)
    shape = target_shape({**config, **({"quantization": {"bits": bits}} if bits else {})}, kind)
    counted = sum(tensor.nbytes for _, tensor in tree_flatten(model.parameters()))
    assert shape.quantized == bool(bits)
    assert shape.weight_bytes == pytest.approx(counted, rel=0.1 if bits else 1e-9)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_drafter_in_float32_is_counted_in_its_own_precision(bits):
    config = published_drafter(QWEN_DRAFT)
    network = DraftNetwork(config)  # lazy, and in float32
    stored = Stored(sum(tensor.nbytes for _, tensor in tree_flatten(network.parameters())), 4)
    if bits < 16:
        quantize_network(network, bits)
    held = sum(tensor.nbytes for _, tensor in tree_flatten(network.parameters()))
    assert drafter_bytes(config, bits, stored) == held


def test_caches_take_what_is_said():
    target, config = tiny_target(), {**TARGET_CONFIGS["qwen3_5"], "dtype": "float32"}
    target.pace, drafter = Pace(CHUNK_ROWS), tiny_drafter(target)
    list(target.prefill(list(range(1, 301)), chunk=2048, keep=15))
    need = memory_need(Plan(target_shape(config, "tiny"), drafter.config, 300, draft_stored=Stored(1, 4)))
    assert target.cache.nbytes == need.kv + need.state // 2
    drafter.observe(mx.zeros((15, 192)), 300)
    mx.eval(drafter.propose(mx.array([1]), 7).tokens)
    assert drafter.cache.nbytes <= need.draft_kv


@pytest.mark.slow
def test_reading_a_prompt_takes_what_is_said(monkeypatch):
    monkeypatch.setattr("dflash2_mlx.targets.limits.QUEUED_LAYERS", 1)  # a CPU runs what is launched one by one
    target, tokens = tiny_target(), [i % 500 for i in range(1000)]
    mx.eval(target.module.parameters())
    gc.collect()  # what earlier tests left is not to be freed in between
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    target.pace = Pace(CHUNK_ROWS)
    list(target.prefill(tokens, chunk=None, keep=15))
    shape = target_shape({**TARGET_CONFIGS["qwen3_5"], "dtype": "float32"}, "tiny")
    need = memory_need(Plan(shape, None, len(tokens)))
    assert mx.get_peak_memory() - before == pytest.approx(need.prefill + need.kv + need.state, rel=0.15)


def test_a_window_takes_the_same_however_long_the_context():
    muse = plan(f"{MUSE}4bit", MUSE_DRAFT)
    cache = sliding.WindowCache(2048)
    cache.update_and_fetch(mx.zeros((1, 2, 2048, 128), mx.bfloat16), mx.zeros((1, 2, 2048, 128), mx.bfloat16))
    growing = 13_312
    rows = memory_need(muse).kv - growing * 8192
    assert rows == 39 * cache.nbytes
    assert memory_need(replace(muse, context=65536)).kv - memory_need(muse).kv == growing * (65536 - 8192)


@pytest.mark.parametrize(("context", "rows"), [(4096, 512), (100_000, 111), (200_000, 64)])
def test_the_deepest_pass_over_a_prompt_is_counted_with_the_rows_that_the_engine_lets_in(context, rows):
    wanted = plan(drafter=None, context=context)
    shape, target = wanted.target, tiny_target()
    target._heads, target.pace = shape.heads, Pace(SMALLEST_CHUNK)
    target.pace.record(10**6, 1.0)
    assert target.rows_at_once(CHUNK_ROWS, context) == rows
    widths = 3 * shape.intermediate_size + 4 * shape.hidden_size + 3 * 10_240
    scores = memory_need(wanted).prefill - 2 * rows * widths * 2
    assert scores == 2 * shape.heads * rows * context * 2


@pytest.mark.parametrize(
    ("gib", "word"), [(10.67, "does not fit"), (16, "does not fit"), (18, "tight"), (21.33, "fits"), (107.5, "fits")]
)
def test_a_verdict_follows_the_share_of_the_limit(gib, word):
    assert judge(plan(), int(gib * GIB)).word == word


def test_the_largest_context_fits_and_one_step_more_does_not():
    limit = int(21.33 * GIB)
    largest = judge(plan(), limit).largest_context
    assert memory_need(plan(context=largest)).total <= limit < memory_need(plan(context=largest + 256)).total


def test_no_context_is_longer_than_the_targets_own():
    assert judge(plan(), 500 * GIB).largest_context == 262144


def test_a_pair_that_fits_needs_no_remedy():
    assert judge(plan(), 100 * GIB).remedies == ()


def test_a_drafter_in_full_precision_is_offered_in_4_bits_first():
    verdict = judge(plan(bits=16), int(18 * GIB))
    assert verdict.word == "does not fit" and "--draft-bits 4" in verdict.remedies[0]


def test_a_long_context_is_offered_shorter_with_the_number():
    verdict = judge(plan(context=200_000), int(21.33 * GIB))
    assert str(verdict.largest_context) in verdict.remedies[0] and "shorter context" in verdict.remedies[0]


def test_doing_without_the_drafter_is_offered_where_it_helps():
    verdict = judge(plan(context=1024), int(15.5 * GIB))
    assert verdict.largest_context == 0 and any("--no-draft" in remedy for remedy in verdict.remedies)


def test_nothing_is_offered_where_nothing_helps():
    verdict = judge(plan(), 8 * GIB)
    assert (verdict.word, verdict.largest_context, verdict.remedies) == ("does not fit", 0, ())


def test_a_drafter_that_sees_everything_keeps_everything():
    config = published_drafter(QWEN_DRAFT)
    full = replace(config, windows=(None,) * 5)
    wide = memory_need(replace(plan(context=32768), drafter=full))
    assert wide.draft_kv > 10 * memory_need(plan(context=32768)).draft_kv and wide.features == 51_200 * CHUNK_ROWS


def test_plain_decoding_needs_no_drafter_and_no_second_state():
    need, drafted = memory_need(plan(drafter=None)), memory_need(plan())
    assert need.drafter == need.features == need.draft_kv == 0 and 2 * need.state == drafted.state


def test_experts_are_counted_from_files_only():
    config = {**TARGET_CONFIGS["qwen3_5"], "model_type": "qwen3_5_moe", "num_experts": 8}
    assert target_shape(config, "moe").weight_bytes is None
    assert target_shape(config, "moe", Stored(123, 2)).weight_bytes == 123


def test_a_nested_text_config_is_read():
    nested = {"model_type": "qwen3_5", "text_config": TARGET_CONFIGS["qwen3_5"], "quantization": {"bits": 4}}
    shape = target_shape(nested, "nested")
    assert shape.full_layers == 2 and shape.quantized


def test_a_missing_key_is_named_with_its_file():
    with pytest.raises(ConfigError, match=r"some/config.json: vocab_size"):
        target_shape({k: v for k, v in TARGET_CONFIGS["qwen3"].items() if k != "vocab_size"}, "some/config.json")


def test_unknown_names_have_no_published_config():
    assert published_target("someone/Qwen3.8-27B-4bit") is None and published_target(f"{QWEN}3bit") is None
    assert published_drafter("someone/else") is None
