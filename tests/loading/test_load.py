"""What is read of a checkpoint and what is not: shards, vision tensors, code, foreign formats, prints."""

import json

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError, UnsupportedError, WeightsError
from dflash2_mlx.loading.load import load_pair
from fakes import tiny_model
from folders import change_config, change_tensors, write_drafter, write_published_target, write_target

MARK = "from pathlib import Path\nPath(__file__).with_name('executed').touch()\n"


def load(target, drafter=None):
    return load_pair(LoadParams(str(target), str(drafter) if drafter else None))


def same_weights(one, other):
    pairs = zip(*(sorted(tree_flatten(pair.target.module.parameters())) for pair in (one, other)), strict=True)
    return all(a[0] == b[0] and mx.array_equal(a[1], b[1]) for a, b in pairs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return load(write_target(tmp_path_factory.mktemp("whole") / "target"))


@pytest.mark.parametrize("name", ["model-old.safetensors", "model.safetensors", "model-00001-of-00009.safetensors"])
def test_a_stray_shard_that_the_index_does_not_name_is_not_read(tmp_path, whole, name):
    folder = write_target(tmp_path / "target", shards=2)
    wrong = {
        key: mx.zeros_like(tensor) for key, tensor in mx.load(str(folder / "model-00001-of-00002.safetensors")).items()
    }
    mx.save_safetensors(str(folder / name), {**wrong, "surplus": mx.zeros((2,))})
    assert same_weights(load(folder), whole)


def test_shards_have_whatever_names_the_index_gives_them(tmp_path, whole):
    folder = write_target(tmp_path / "target", shards=2)
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-", "part-"))
    for path in folder.glob("model-*.safetensors"):
        path.rename(folder / path.name.replace("model-", "part-"))
    assert same_weights(load(folder), whole)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("shard", [1, 2, 3])
def test_a_missing_shard_is_named_with_and_without_an_index(tmp_path, index, shard):
    folder = write_target(tmp_path / "target", shards=3)
    name = f"model-{shard:05d}-of-00003.safetensors"
    (folder / name).unlink()
    if not index:
        (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(WeightsError, match=rf"incomplete: shard {name} is missing \(1 of 3\)"):
        load(folder)


def test_shards_without_an_index_are_all_read(tmp_path, whole):
    folder = write_target(tmp_path / "target", shards=3)
    (folder / "model.safetensors.index.json").unlink()
    assert same_weights(load(folder), whole)


def test_vision_and_mtp_tensors_are_skipped_without_being_read(tmp_path, whole):
    folder = write_target(tmp_path / "target")
    names = ("vision_tower.blocks.0.weight", "model.visual.merger.weight", "language_model.mtp.fc.weight")
    change_tensors(folder, {}, **{name: mx.zeros((4096, 512)) for name in names})
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    assert same_weights(load(folder), whole) and mx.get_peak_memory() - before < 8 * 2**20


def test_a_sharded_checkpoint_in_the_published_layout_is_loaded_layer_by_layer_as_it_is_quantised(tmp_path):
    finer, kept = "language_model.model.layers.0.mlp.down_proj", "language_model.lm_head"
    settings = {"group_size": 64, "bits": 4, finer: {"group_size": 32, "bits": 8}, kept: False}
    model = tiny_model()
    nn.quantize(
        model, class_predicate=lambda path, part: hasattr(part, "to_quantized") and _fitting(settings, path, part)
    )
    pair = load(write_published_target(tmp_path / "target", model, settings), write_drafter(tmp_path / "drafter"))
    layers = pair.target.module.layers
    assert (layers[0].mlp.down_proj.bits, layers[1].mlp.gate_proj.bits) == (8, 4) and pair.target.quantized
    stored, loaded = (dict(tree_flatten(part.parameters())) for part in (model.language_model, pair.target.module))
    assert stored.keys() == loaded.keys() and all(mx.array_equal(stored[name], loaded[name]) for name in stored)
    ids = mx.array([[1, 2, 3]])
    assert mx.array_equal(model(ids), pair.target.module(ids)) and pair.drafter


@pytest.mark.parametrize("nested", [False, True])
def test_a_block_that_only_a_newer_converter_writes_is_mlx_own(tmp_path, nested):
    settings, model = {"group_size": 64, "bits": 4}, tiny_model()
    nn.quantize(model, class_predicate=lambda path, part: hasattr(part, "to_quantized") and _fitting({}, path, part))
    folder = write_published_target(tmp_path / "target", model, settings)
    old = load(folder)
    change_config(folder, quantization=None, quantization_config=None if nested else settings)
    if nested:
        text = json.loads((folder / "config.json").read_text())["text_config"]
        change_config(folder, text_config={**text, "quantization_config": settings})
    assert same_weights(load(folder), old) and load(folder).target.quantized


def _fitting(settings, path, part):
    """How the layer at `path` is quantised: as its own settings say, if its rows are long enough."""
    return settings.get(path, {"group_size": 64, "bits": 4} if part.weight.shape[-1] % 64 == 0 else False)


@pytest.mark.parametrize("file", ["model.py", "../elsewhere.py"])
def test_a_config_that_brings_its_own_code_is_refused(tmp_path, file):
    folder = write_target(tmp_path / "target", model_file=file)
    (folder / "model.py").write_text(MARK)
    with pytest.raises(UnsupportedError, match="its own code to be run"):
        load(folder)
    assert not (folder / "executed").exists()


def test_an_auto_map_is_not_followed(tmp_path):
    folder = write_target(tmp_path / "target", auto_map={"AutoModel": "code.Model", "AutoTokenizer": ["code.T", None]})
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": {"AutoTokenizer": ["code.T", None]}}))
    (folder / "code.py").write_text(MARK)
    try:
        load(folder)
    except LoadError as error:
        assert "tokenizer" in str(error)
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("method", ["bitsandbytes", "fp8", "gguf", None])
def test_a_target_in_a_format_that_mlx_lm_does_not_convert_is_refused_by_name(tmp_path, method):
    folder = write_target(tmp_path / "target", quantization_config={"quant_method": method})
    with pytest.raises(UnsupportedError, match=f"stored as {method!r}.*mlx-community"):
        load(folder)


@pytest.mark.parametrize("change", [{"fc.weight": None}, {"fc.weight": "fc.weights"}, {"surplus": mx.zeros((2,))}])
def test_a_drafter_whose_tensors_do_not_fit_is_refused_before_the_target_is_read(tmp_path, monkeypatch, change):
    target, drafter = write_target(tmp_path / "target"), write_drafter(tmp_path / "drafter")
    renamed = {name: new for name, new in change.items() if not isinstance(new, mx.array)}
    change_tensors(drafter, renamed, **{name: new for name, new in change.items() if isinstance(new, mx.array)})
    monkeypatch.setattr("mlx_lm.utils.load_model", lambda *_: pytest.fail("the target was read"))
    with pytest.raises(WeightsError, match="do not match the config"):
        load(target, drafter)


@pytest.mark.parametrize("kind", [mx.uint8, mx.int32])
def test_a_drafter_with_packed_tensors_is_refused_by_name(tmp_path, kind):
    drafter = write_drafter(tmp_path / "drafter")
    change_tensors(drafter, {"norm.weight": None}, **{"norm.weight": mx.zeros((64,), kind)})
    with pytest.raises(UnsupportedError, match=r"norm.weight is stored as (U8|I32).*--draft-bits"):
        load(write_target(tmp_path / "target"), drafter)


def test_a_drafter_exported_by_modelopt_is_refused_by_name(tmp_path):
    drafter = write_drafter(tmp_path / "drafter")
    (drafter / "hf_quant_config.json").write_text("{}")
    with pytest.raises(UnsupportedError, match="modelopt"):
        load(write_target(tmp_path / "target"), drafter)


def test_what_mlx_lm_prints_stays_off_stdout(tmp_path, monkeypatch, capfd):
    from mlx_lm import utils

    for name in ("load_model", "load_tokenizer"):
        real = getattr(utils, name)
        monkeypatch.setattr(utils, name, lambda *given, real=real: print("[INFO] talk") or real(*given))
    load(write_target(tmp_path / "target"))
    assert capfd.readouterr() == ("", "[INFO] talk\n[INFO] talk\n")


def test_a_known_target_without_generation_config_gets_the_published_sampling(tmp_path, monkeypatch):
    folder = write_target(tmp_path / "target")
    (folder / "generation_config.json").unlink()
    monkeypatch.setattr("dflash2_mlx.store.opening.read_name", lambda *_: folder)
    pair = load_pair(LoadParams("qwen3.8-27b", speculate=False))
    assert pair.defaults == {"temperature": 1.0, "top_p": 0.95, "top_k": 20}
