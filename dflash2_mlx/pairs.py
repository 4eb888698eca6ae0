"""Which drafter belongs to which target, and the short names people type. Knows no MLX and no files."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A target and its drafter as repository ids (`owner/name@revision`), or folders of this package."""

    alias: str
    target: str
    drafter: str


DEMO = "demo"
KNOWN_PAIRS = (
    KnownPair(DEMO, "package:demo/target", "package:demo/drafter"),
    KnownPair(
        "qwen3.8-27b",
        "mlx-community/Qwen3.8-27B-4bit@3e6447f082e89cc7f0bc6e5441afd38dfce760ff",
        "z-lab/Qwen3.8-27B-DFlash2@50307d4c4cde6860d4eee73e2547cd786fe8e8a4",
    ),
)


def known_pair(name: str) -> KnownPair | None:
    """The pair whose alias, or whose target's repository id (with or without revision), is `name`."""
    for pair in KNOWN_PAIRS:
        if name in (pair.alias, pair.target, pair.target.split("@")[0]):
            return pair
    return None
