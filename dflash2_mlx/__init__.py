"""DFlash 2 speculative decoding on MLX: the target's own answers, faster. Everything is resolved on first use."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dflash2_mlx.api import Answer, generate, load, stream_generate
    from dflash2_mlx.config import EngineParams, SamplingParams, TextParams
    from dflash2_mlx.errors import DFlash2Error

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "DFlash2Error",
    "EngineParams",
    "SamplingParams",
    "TextParams",
    "generate",
    "load",
    "stream_generate",
]

_HOMES = {
    "api": ("Answer", "generate", "load", "stream_generate"),
    "config": ("EngineParams", "SamplingParams", "TextParams"),
    "errors": ("DFlash2Error",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"dflash2_mlx.{home}"), name)
    raise AttributeError(f"module 'dflash2_mlx' has no attribute {name!r}")
