"""How many tokens a round a saved drafter gives on its target, with the real loop. Knows the engine."""

import json
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx

from dflash2_mlx.config import EngineParams, SamplingParams
from dflash2_mlx.engine.loop import decode
from dflash2_mlx.engine.progress import Task
from dflash2_mlx.events import Round
from dflash2_mlx.models.config import parse_drafter_config
from dflash2_mlx.models.drafter import DFlashDrafter, build_network
from drafter_training.data import Piece
from drafter_training.teacher import Teacher

REPLY_TOKENS = 64


def load_drafter(folder: Path, teacher: Teacher) -> DFlashDrafter:
    """The drafter in `folder`, loaded strictly as at inference. Raises: LoadError."""
    source = folder / "config.json"
    config = parse_drafter_config(json.loads(source.read_text(encoding="utf-8")), str(source))
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    network = build_network(config, weights)
    return DFlashDrafter(config, network, teacher.target.embed, teacher.target.head)


def tokens_per_round(teacher: Teacher, drafter: DFlashDrafter, pieces: Sequence[Piece], block_size: int) -> float:
    """Greedy, over the pieces' prompts; plain text is continued from its middle."""
    params = EngineParams(max_tokens=REPLY_TOKENS, block_size=block_size, end_tokens=teacher.end_tokens)
    committed = rounds = 0
    for piece in pieces:
        prompt = piece.ids[: piece.start if piece.start > 1 else max(1, len(piece.ids) // 2)]
        teacher.target.reset()
        drafter.reset()
        for event in decode(teacher.target, drafter, Task(prompt, SamplingParams(), params)):
            if isinstance(event, Round) and event.drafted:
                committed += len(event.tokens)
                rounds += 1
    return committed / max(1, rounds)
