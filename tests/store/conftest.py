"""A repository with weights on the stub Hub."""

import json

import numpy as np
import pytest
from stub_hub import Repo, StubHub

WEIGHTS = {f"layer.{i}": np.random.default_rng(i).normal(size=(64, 64)).astype(np.float32) for i in range(4)}


@pytest.fixture
def repo(hub: StubHub) -> Repo:
    """The repository `some/model`: weights in one file, a config, code and a picture that nobody needs."""
    files = {"config.json": b'{"model_type": "qwen3"}', "model.safetensors": safetensors(), "tokenizer.json": b"{}"}
    return hub.add("some/model", {**files, "run_me.py": b"print('code')", "picture.png": b"png"})


def safetensors(prefix: str = "") -> bytes:
    """64 kB of weights in one file."""
    header, data = {}, b""
    for name, tensor in WEIGHTS.items():
        span = [len(data), len(data) + tensor.nbytes]
        header[prefix + name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": span}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data
