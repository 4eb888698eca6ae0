"""Writes tiny checkpoints to disk in the published layout, for tests that load them as a user would."""

import json
from collections.abc import Mapping
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from dflash2_mlx.store.opening import open_model
from fakes import DRAFTER_CONFIG, TARGET_CONFIGS, VOCAB, tiny_drafter, tiny_model, tiny_target

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def find_folder(name: str, revision: str | None = None) -> Path:
    """The folder of the model `name`. Raises: LoadError where it cannot be loaded."""
    model = open_model(name, revision)
    if model.fault:
        raise model.fault
    return model.folder


def write_target(folder: Path, model_type: str = "qwen3_5", *, shards: int = 1, **changes: object) -> Path:
    """A tiny random float32 target with a byte-level tokenizer; `changes` replace config keys."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = dict(tree_flatten(tiny_model(model_type).parameters()))
    config = {**TARGET_CONFIGS[model_type], "eos_token_id": 258, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False, "eos_token_id": [258, 256]}))
    _write_weights(folder, weights, shards)
    write_tokenizer(folder)
    return folder


def write_published_target(folder: Path, model: nn.Module, quantization: Mapping[str, object]) -> Path:
    """`model`, a `qwen3_5`, as it is published: nested text settings, three shards, vision and mtp tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    text = {key: value for key, value in TARGET_CONFIGS["qwen3_5"].items() if key != "model_type"}
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {**text, "model_type": "qwen3_5_text"},
        "vision_config": {"depth": 1, "hidden_size": 64},
        "quantization": quantization,
        "quantization_config": quantization,
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = dict(tree_flatten(model.parameters()))
    unused = ("vision_tower.blocks.0.attn.qkv.weight", "vision_tower.merger.norm.bias", "language_model.mtp.fc.weight")
    _write_weights(folder, {**weights, **{name: mx.ones((64, 64)) for name in unused}}, 3)
    write_tokenizer(folder)
    return folder


def write_drafter(folder: Path, **changes: object) -> Path:
    """A tiny random drafter that fits `write_target`; `changes` replace config keys (not those of the weights)."""
    folder.mkdir(parents=True, exist_ok=True)
    network = tiny_drafter(tiny_target()).network
    (folder / "config.json").write_text(json.dumps({**DRAFTER_CONFIG, **changes}))
    _write_weights(folder, dict(tree_flatten(network.parameters())), 1)
    return folder


def change_config(folder: Path, **changes: object) -> None:
    """Replace keys of the folder's config; None removes the key. `dflash_config` is merged, not replaced."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    nested = changes.pop("dflash_config", {})
    assert isinstance(nested, Mapping)
    for target, edits in ((config, changes), (config.get("dflash_config", {}), nested)):
        for key, value in edits.items():
            target.pop(key, None)
            if value is not None:
                target[key] = value
    path.write_text(json.dumps(config))


def change_tensors(folder: Path, edits: Mapping[str, str | None], **added: mx.array) -> None:
    """Rename tensors (old name -> new name), drop them (old name -> None) or add new ones."""
    path = folder / "model.safetensors"
    weights = {edits.get(name, name): tensor for name, tensor in mx.load(str(path)).items()}
    weights.pop(None, None)
    mx.eval(weights)
    mx.save_safetensors(str(path), {**weights, **added})


def _write_weights(folder: Path, weights: dict[str, mx.array], shards: int) -> None:
    if shards == 1:
        mx.save_safetensors(str(folder / "model.safetensors"), weights)
        return
    names, index = sorted(weights), {}
    for number in range(shards):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: weights[name] for name in names[number::shards]}
        mx.save_safetensors(str(folder / file), part)
        index.update(dict.fromkeys(part, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer with a ChatML template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
    assert tokenizer.get_vocab_size() < VOCAB
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
