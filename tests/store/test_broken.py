"""Broken and hostile checkpoints, one a row: each is refused in one line that names what is wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError
from dflash2_mlx.loading.load import load_pair
from dflash2_mlx.memory.verdict import examine
from dflash2_mlx.store.checkpoint import INDEX
from dflash2_mlx.store.opening import open_pair
from folders import change_config, change_tensors, write_drafter
from machines import linux

INFINITY, HUGE = float("inf"), 10**30


def index(**names: object) -> Callable[[Path], None]:
    """Writes an index with these shards for the tensors `a`, `b`, ..."""
    return lambda folder: (folder / INDEX).write_text(json.dumps({"weight_map": names})) and None


def header(**entry: object) -> Callable[[Path], None]:
    """Replaces what the header says of the first tensor; the header keeps its length."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        raw = path.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        content = json.loads(raw[8 : 8 + length])
        name = next(name for name in content if name != "__metadata__")
        content[name].update(entry)
        text = json.dumps(content, separators=(",", ":")).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])

    return change


def config(**changes: object) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, **changes)


def generation(**settings: object) -> Callable[[Path], None]:
    return lambda folder: (folder / "generation_config.json").write_text(json.dumps(settings)) and None


def text(name: str, content: str | bytes) -> Callable[[Path], None]:
    return lambda folder: (
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode()) and None
    )


def renamed(name: str) -> Callable[[Path], None]:
    """Gives a tensor a name from outside."""
    return lambda folder: change_tensors(folder, {}, **{name: mx.zeros((2,))})


def looped(name: str) -> Callable[[Path], None]:
    def loop(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(name)

    return loop


def piped(name: str) -> Callable[[Path], None]:
    def pipe(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return pipe


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def directory(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return make


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda folder: [change(folder) for change in changes] and None


def garbage_copy(folder: Path) -> None:
    """A second indexed shard that holds other numbers under the names of the first."""
    path = folder / "model.safetensors"
    tensors = mx.load(str(path))
    names = dict.fromkeys(tensors, "model.safetensors")
    mx.save_safetensors(
        str(folder / "zz.safetensors"), {n: mx.zeros_like(t) for n, t in tensors.items()} | {"z": mx.zeros(1)}
    )
    (folder / INDEX).write_text(json.dumps({"weight_map": names | {"z": "zz.safetensors"}}))


WEIGHTS = {  # of either model
    "shard ..": (index(a=".."), "no safetensors file"),
    "shard without a name": (index(a=""), "no safetensors file"),
    "shard .": (index(a="."), "outside the folder"),
    "shard elsewhere": (index(a="/etc/passwd"), "outside the folder"),
    "shard of numbers": (index(a=3), "outside the folder"),
    "shard of a list": (index(a=["model.safetensors"]), "outside the folder"),
    "shard that is a directory": (
        both(directory("d.safetensors"), index(a="d.safetensors")),
        "d.safetensors is missing",
    ),
    "shard that is a config": (index(a="config.json"), "no safetensors file"),
    "shard with a long name": (index(a="a" * 300 + ".safetensors"), "is missing"),
    "shard with a null byte": (index(a="a\0.safetensors"), r"a\x00.safetensors"),
    "shard with an escape": (index(a="a\x1b]0;owned\x07.safetensors"), r"\x1b]0;owned\x07"),
    "index of a list": (text(INDEX, '{"weight_map": [1]}'), "no weight_map"),
    "index nested deep": (text(INDEX, '{"a":' * 100_000), "not readable as JSON"),
    "tensor in two shards": (garbage_copy, "stands in model.safetensors too"),
    "offsets of strings": (header(data_offsets="0,4"), "data_offsets"),
    "three offsets": (header(data_offsets=[0, 4, 8]), "data_offsets"),
    "one offset": (header(data_offsets=[0]), "data_offsets"),
    "no offsets": (header(data_offsets=[]), "data_offsets"),
    "offsets of infinity": (header(data_offsets=[0, INFINITY]), "data_offsets"),
    "offsets of nan": (header(data_offsets=[0, float("nan")]), "data_offsets"),
    "negative offsets": (header(data_offsets=[-8, 0]), "data_offsets"),
    "huge offsets": (header(data_offsets=[0, HUGE]), "data_offsets"),
    "backward offsets": (header(data_offsets=[8, 4]), "data_offsets"),
    "offsets of booleans": (header(data_offsets=[False, True]), "data_offsets"),
    "shape against its bytes": (header(shape=[3, 5, 7]), "bytes of data"),
    "shape of a string": (header(shape="64"), "shape"),
    "shape of floats": (header(shape=[1.5]), "shape"),
    "huge shape": (header(shape=[2**62, 2**62]), "bytes of data"),
    "negative shape": (header(shape=[-1]), "shape"),
    "no dtype": (header(dtype=None), "stored as None|cannot load"),
    "header of nothing": (text("model.safetensors", (2).to_bytes(8, "little") + b"[]"), "header is damaged"),
    "header nested deep": (
        text("model.safetensors", (100_000).to_bytes(8, "little") + b"[" * 100_000),
        "nested too deep",
    ),
    "header longer than the file": (text("model.safetensors", (2**26).to_bytes(8, "little") + b"{}"), "is cut"),
    "trailing bytes": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes() + b"x" * 100) and None,
        "longer than its header says",
    ),
    "weights that link to themselves": (looped("model.safetensors"), "no model*.safetensors"),
    "weights that are a pipe": (piped("model.safetensors"), "no model*.safetensors"),
    "config that links to itself": (looped("config.json"), "config.json"),
    "config that is a pipe": (piped("config.json"), "no regular file"),
    "config that is a directory": (directory("config.json"), "no regular file"),
    "config that is a list": (text("config.json", "[]"), "a mapping was expected"),
    "config that is not text": (text("config.json", b"\xff\xfe"), "not readable as JSON"),
    "tensor with an escape": (renamed("\x1b]0;owned\x07\u202e"), r"\x1b]0;owned\x07\u202e"),
    "more layers than tensors": (config(num_hidden_layers=2**31), "num_hidden_layers"),
    "no layer": (config(num_hidden_layers=0), "num_hidden_layers"),
    "layers of text": (config(num_hidden_layers="8"), "num_hidden_layers"),
    "context without end": (config(max_position_embeddings=INFINITY), "max_position_embeddings"),
    "context of text": (config(max_position_embeddings="long"), "max_position_embeddings"),
    "context of nothing": (config(max_position_embeddings=0), "max_position_embeddings"),
    "context below nothing": (config(max_position_embeddings=-5), "max_position_embeddings"),
    "layers without end": (config(num_hidden_layers=INFINITY), "num_hidden_layers"),
}
TARGETS = {
    "vocabulary of 2^60": (config(vocab_size=2**60), "cannot load"),
    "vocabulary beyond any": (config(vocab_size=HUGE), "cannot load|vocab_size"),
    "no width": (config(hidden_size=0), "cannot load|hidden_size"),
    "heads of nan": (config(num_attention_heads=float("nan")), "cannot load|num_attention_heads"),
    "interval of nothing": (config(full_attention_interval=0), "cannot load"),
    "rope of a mapping": (config(rope_parameters={"rope_theta": {"a": 1}, "rope_type": "default"}), "cannot load"),
    "rope of fewer than no rows": (
        config(rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": -1}),
        "cannot load",
    ),
    "text_config of text": (config(text_config="none"), "text_config is not a mapping"),
    "text_config of nothing": (config(text_config={}), "cannot load"),
    "model_type of a list": (config(model_type=["qwen3"]), "qwen3"),
    "model_type with an escape": (config(model_type="\x1b[2J"), r"\x1b[2J"),
    "model_file with an escape": (config(model_file="\x1b[2J"), "its own code"),
    "quantization of text": (config(quantization="4 bits"), "cannot load|quantization"),
    "quantization without bits": (config(quantization={"group_size": 64}), "cannot load|bits"),
    "quantization_config of text": (config(quantization_config="4 bits"), "stored as None"),
    "top_k of infinity": (generation(top_k=INFINITY), "generation_config.json: top_k is inf"),
    "top_k of a half": (generation(top_k=1.5), "generation_config.json: top_k is 1.5"),
    "top_k below off": (generation(top_k=-2), "generation_config.json: top_k is -2"),
    "temperature of nan": (generation(temperature=float("nan")), "generation_config.json: temperature is nan"),
    "temperature beyond any": (generation(temperature=HUGE), "generation_config.json: temperature"),
    "top_p of two": (generation(top_p=2), "generation_config.json: top_p is 2"),
    "generation that is a list": (text("generation_config.json", "[]"), "a mapping was expected"),
    "no tokenizer": (removed("tokenizer.json"), "there is no tokenizer.json"),
    "tokenizer of nothing": (text("tokenizer.json", "{}"), "no usable tokenizer"),
    "tokenizer without a word": (
        text(
            "tokenizer.json",
            '{"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}',
        ),
        "no usable tokenizer",
    ),
    "tokenizer of a list": (text("tokenizer.json", "[]"), "no usable tokenizer"),
    "tokenizer that is cut": (text("tokenizer.json", '{"version": "1.0", "trunc'), "no usable tokenizer"),
    "tokenizer_config of a list": (text("tokenizer_config.json", "[]"), "no usable tokenizer"),
}
DRAFTERS = {
    "rope_theta of infinity": (config(rope_parameters={"rope_theta": INFINITY}), "rope_theta"),
    "two values of rope_theta": (config(rope_theta=500.0), "rope_theta"),
    "two values of block_size": (config(block_size=16), "block_size"),
    "layers in a small file": (config(num_hidden_layers=1000, layer_types=None), "num_hidden_layers"),
    "hidden size of 2^31": (config(hidden_size=2**31), "hidden_size"),
    "heads of 2^31": (config(num_attention_heads=2**31), "cannot build this drafter"),
}


def rows(table: dict[str, tuple[Callable[[Path], None], str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("change", "words"), table.values(), ids=table.keys())


def refused(pair: tuple[Path, ...], words: str) -> bool:
    """Refused by loading, and no more than told by `doctor`."""
    params = LoadParams(*map(str, pair))
    with pytest.raises(LoadError) as caught:
        load_pair(params)
    line = str(caught.value)
    assert line.isprintable() and len(line) < 1000
    assert any(word in line for word in words.split("|")), line
    told = examine(open_pair(params), None, linux())
    assert all(problem.isprintable() for problem in told.problems)
    return True


@rows({name: row for name, row in WEIGHTS.items() if name != "no dtype"})
def test_a_target_whose_files_are_wrong(pair, change, words):
    change(pair[0])
    assert refused(pair, words)


@rows(WEIGHTS)
def test_a_drafter_whose_files_are_wrong(pair, change, words):
    change(pair[1])
    assert refused(pair, words)


@rows(TARGETS)
def test_a_target_whose_words_are_wrong(pair, change, words):
    change(pair[0])
    assert refused(pair[:1], words)


@rows(DRAFTERS)
def test_a_drafter_whose_words_are_wrong(pair, change, words):
    change(pair[1])
    assert refused(pair, words)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_that_may_not_be_read(pair, monkeypatch, name):
    real = Path.open

    def refuse(path, *given, **named):
        if path.name == name and path.parent == pair[1]:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *given, **named)

    monkeypatch.setattr(Path, "open", refuse)
    assert refused(pair, "Permission denied")


def test_a_folder_that_may_not_be_listed(pair, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert refused(pair, "not a folder that can be read")


def test_an_empty_folder(pair, tmp_path):
    (tmp_path / "empty").mkdir()
    assert refused((tmp_path / "empty", pair[1]), "there is no config.json here. Give a model folder.")


def test_two_sets_of_weights_without_an_index(pair):
    weights = (pair[0] / "model.safetensors").read_bytes()
    (pair[0] / "model-00001-of-00001.safetensors").write_bytes(weights)
    assert refused(pair, "stands in model-00001-of-00001.safetensors too")


def test_a_broken_tokenizer_is_refused_before_a_weight_is_read(pair, monkeypatch):
    monkeypatch.setattr("mlx.core.load", lambda *_: pytest.fail("weights were read"))
    (pair[0] / "tokenizer.json").write_text("{}")
    assert refused(pair, "no usable tokenizer")


@pytest.mark.parametrize("value", [-1, 0, -1.0])
def test_a_top_k_of_minus_one_is_off(pair, value):
    generation(top_k=value, temperature=1.0)(pair[0])
    assert load_pair(LoadParams(str(pair[0]), speculate=False)).defaults == {"temperature": 1.0, "top_k": 0}


def test_a_target_stays_usable_beside_a_drafter_that_is_none(pair, tmp_path):
    broken = write_drafter(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    opened = open_pair(LoadParams(str(pair[0]), str(broken)))
    assert opened.target.fault is None and opened.drafter and "JSON" in str(opened.drafter.fault)
