"""Which drafter belongs to which target, and the short names people type. Knows no MLX and no files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from dflash2_mlx.config import LoadParams
from dflash2_mlx.errors import LoadError

DEMO = "demo"
FLAGSHIP = "qwen3.8-27b"


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A target and its drafter as repository ids (`owner/name@revision`), or folders of this package.

    An id without revision is the newest one. The sizes are bytes of the files, None where they are not published.
    block_size: what the drafter was trained with, None = as its config says. sampling: what the target's makers
    recommend, for a checkpoint without generation_config.json; empty = greedy.
    """

    alias: str
    target: str
    drafter: str
    target_bytes: int | None = None
    drafter_bytes: int | None = None
    method: str = "DFlash 2"
    block_size: int | None = None
    sampling: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total_bytes(self) -> int | None:
        """Bytes of both, where both are known."""
        if self.target_bytes is None or self.drafter_bytes is None:
            return None
        return self.target_bytes + self.drafter_bytes


_QWEN38_SAMPLING = MappingProxyType({"temperature": 1.0, "top_p": 0.95, "top_k": 20})
_MUSE_SAMPLING = MappingProxyType({"temperature": 1.0, "top_p": 0.95, "top_k": 64})


def _qwen38(alias: str, target: str, target_bytes: int | None = None) -> KnownPair:
    drafter = "z-lab/Qwen3.8-27B-DFlash2@50307d4c4cde6860d4eee73e2547cd786fe8e8a4"
    return KnownPair(alias, target, drafter, target_bytes, 3_848_817_896, "DFlash 2", 8, _QWEN38_SAMPLING)


def _muse(alias: str, bits: int) -> KnownPair:
    target, drafter = f"mlx-community/Muse-Glimmer-30B-{bits}bit", "z-lab/Muse-Glimmer-30B-DFlash2"
    return KnownPair(alias, target, drafter, None, 5_544_319_488, "DFlash 2", 16, _MUSE_SAMPLING)


def _muse_assistant(alias: str, bits: int) -> KnownPair:
    target, drafter = f"mlx-community/Muse-Glimmer-30B-{bits}bit", "meta-models/Muse-Glimmer-30B-assistant"
    return KnownPair(alias, target, drafter, None, None, "DFlash 1", 16, _MUSE_SAMPLING)


def _dflash1(target: str, drafter: str, block_size: int | None = None) -> KnownPair:
    """The 4-bit conversion of a Qwen model with its published DFlash 1 drafter."""
    return KnownPair(
        target.lower(), f"mlx-community/{target}-4bit", f"z-lab/{drafter}", method="DFlash 1", block_size=block_size
    )


KNOWN_PAIRS = (
    KnownPair(DEMO, "package:demo/target", "package:demo/drafter"),
    _qwen38(FLAGSHIP, "mlx-community/Qwen3.8-27B-4bit@3e6447f082e89cc7f0bc6e5441afd38dfce760ff", 16_050_000_000),
    _qwen38("qwen3.8-27b-8bit", "mlx-community/Qwen3.8-27B-8bit"),
    _qwen38("qwen3.8-27b-bf16", "mlx-community/Qwen3.8-27B-bf16"),
    _muse("muse-glimmer-30b", 4),
    _muse("muse-glimmer-30b-8bit", 8),
    _muse_assistant("muse-glimmer-30b-assistant", 4),
    _muse_assistant("muse-glimmer-30b-8bit-assistant", 8),
    _dflash1("Qwen3-4B", "Qwen3-4B-DFlash-b16", 16),
    _dflash1("Qwen3-8B", "Qwen3-8B-DFlash-b16", 16),
    _dflash1("Qwen3.5-4B", "Qwen3.5-4B-DFlash"),
    _dflash1("Qwen3.5-9B", "Qwen3.5-9B-DFlash"),
    _dflash1("Qwen3.5-27B", "Qwen3.5-27B-DFlash"),
    _dflash1("Qwen3.6-27B", "Qwen3.6-27B-DFlash"),
)


def known_pair(name: str) -> KnownPair | None:
    """The first pair whose alias, or whose target's repository id at any revision, is `name`."""
    repository = name.split("@")[0]
    for pair in KNOWN_PAIRS:
        if name.lower() == pair.alias or repository == pair.target.split("@")[0]:
            return pair
    return None


def target_and_drafter(params: LoadParams) -> tuple[str, str | None, str | None]:
    """Target and drafter that `params` ask for and, where there is no drafter, the reason.

    A revision that the user gave wins over the pinned one. Raises: LoadError where a required drafter is unknown.
    """
    pair = known_pair(params.model)
    model = pair.target if pair and "@" not in params.model else params.model
    if not params.speculate:
        return model, None, "switched off (--no-draft)"
    draft = params.draft or (pair.drafter if pair else None)
    if draft is None and params.require_draft:
        raise LoadError(f"no drafter is known for {params.model}. Give one with --draft, or drop --require-draft.")
    if draft is None:
        return model, None, f"no drafter is known for {params.model}; give one with --draft"
    known = known_pair(draft) if "/" not in draft else None
    return model, known.drafter if known else draft, None
