"""What a loaded pair takes: every tensor that is used is read once and held once, and no other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlx.utils import tree_flatten
from sparse import lazy_drafter, lazy_model, shapes_of, write_sparse, write_sparse_shards

from dflash2_mlx.config import LoadParams
from dflash2_mlx.loading.load import load_pair
from fakes import VOCAB
from folders import write_drafter, write_target, write_tokenizer

ROOT = Path(__file__).parents[2]
HIDDEN, ROWS, LAYERS = 1024, 131_072, 32
TARGET = {
    "hidden_size": HIDDEN,
    "intermediate_size": 4096,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "vocab_size": ROWS,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "linear_num_value_heads": 16,
    "linear_num_key_heads": 8,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "rope_parameters": {"type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}
DRAFTER = {
    "architectures": ["DFlash2DraftModel"],
    "model_type": "qwen3",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 5,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 4096,
    "vocab_size": ROWS,
    "rms_norm_eps": 1e-6,
    "num_target_layers": LAYERS,
    "layer_types": ["sliding_attention"] * 5,
    "sliding_window": 512,
    "is_causal": False,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "dflash_config": {
        "block_size": 8,
        "target_layer_ids": [1, 9, 17, 25, 31],
        "mask_token_id": 500,
        "selector_rank": 256,
        "selector_top_k": 16,
        "conv_kernel_size": 2,
        "conv_group_size": 16,
    },
}
# Runs in a process of its own: what load_pair adds to resident memory, the most there was, and the bytes it read.
MEASURE = """
import json, re, sys
from pathlib import Path
import mlx.core as mx
import mlx_lm.utils, transformers
from dflash2_mlx.config import LoadParams
from dflash2_mlx.loading.load import load_pair

def now():
    told = Path("/proc/self/status").read_text() + Path("/proc/self/io").read_text()
    rss, most, read = (int(re.search(rf"{key}:\\s+(\\d+)", told)[1]) for key in ("VmRSS", "VmHWM", "rchar"))
    return rss * 1024, most * 1024, read

mx.set_default_device(mx.cpu)
before = now()
pair = load_pair(LoadParams(*sys.argv[1:], draft_bits=16))
resident, most, read = (after - first for after, first in zip(now(), before))
print(json.dumps({"resident": resident, "most": most, "read": read, "active": mx.get_active_memory(),
                  "kept": mx.get_cache_memory(), "weights": pair.weight_bytes}))
"""


def write_pair(root, bits):
    """A pair in the published layout, zeros throughout: shards, nested config, vision and mtp tensors. Its bytes."""
    target, drafter = root / "target", root / "drafter"
    target.mkdir()
    drafter.mkdir()
    text = {**TARGET, "intermediate_size": 4096 if not bits else 24_576}
    config = {"model_type": "qwen3_5", "text_config": text}
    config.update({"quantization": {"group_size": 64, "bits": bits}} if bits else {})
    (target / "config.json").write_text(json.dumps(config))
    (drafter / "config.json").write_text(json.dumps(DRAFTER))
    write_tokenizer(target)
    used = shapes_of(lazy_model(config, bits))
    kind = used["language_model.model.norm.weight"][1]
    skipped = {f"{name}.weight": ((ROWS, HIDDEN), kind) for name in ("vision_tower.merger", "language_model.mtp.fc")}
    return write_sparse_shards(target, used, skipped, 3) + write_sparse(
        drafter / "model.safetensors", shapes_of(lazy_drafter(DRAFTER))
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process holds and reads")
@pytest.mark.parametrize("bits", [4, None])
def test_a_pair_of_2_gb_takes_what_its_files_hold_and_is_read_once(tmp_path, bits):
    size = write_pair(tmp_path, bits)
    assert size > 1.9e9
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "target"), str(tmp_path / "drafter")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print({name: f"{value / size:.3f}" for name, value in found.items()}, f"of {size / 1e9:.2f} GB")
    assert found["weights"] == size
    assert found["active"] == pytest.approx(size, rel=0.01) and found["kept"] == 0
    assert found["resident"] == pytest.approx(size, rel=0.1)
    assert size <= found["read"] < 1.02 * size  # configs and tokenizer are read besides


def test_the_drafter_uses_the_targets_own_embedding_and_head(tmp_path):
    pair = load_pair(LoadParams(str(write_target(tmp_path / "target")), str(write_drafter(tmp_path / "drafter"))))
    assert (pair.drafter._embed, pair.drafter._head) == (pair.target.embed, pair.target.head)
    held = [tensor.shape for _, tensor in tree_flatten(pair.drafter.network.parameters())]
    assert (VOCAB, pair.drafter.config.hidden_size) not in held
