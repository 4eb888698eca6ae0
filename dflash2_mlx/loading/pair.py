"""What loading gives: the two models, ready to answer. Knows mlx; no files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlx.utils import tree_flatten

from dflash2_mlx.models.drafter import DFlashDrafter
from dflash2_mlx.store.opening import OpenedPair
from dflash2_mlx.targets.base import LayeredTarget
from dflash2_mlx.text.prompt import ChatFormat


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Pair:
    """A loaded target and, unless `speculation_off` says why not, its drafter.

    opened: the files that it was loaded from. defaults: sampling settings of the target's generation_config.
    end_tokens: every id that ends an answer.
    """

    opened: OpenedPair
    target: LayeredTarget
    drafter: DFlashDrafter | None
    tokenizer: Any
    chat: ChatFormat
    end_tokens: frozenset[int]
    defaults: Mapping[str, float]

    @property
    def model_name(self) -> str:
        """The target as it was asked for."""
        return self.opened.params.model

    @property
    def draft_name(self) -> str | None:
        """The drafter by its resolved name."""
        return self.opened.drafter.name if self.opened.drafter else None

    @property
    def speculation_off(self) -> str | None:
        """Why there is no drafter."""
        return self.opened.drafting_off

    @property
    def weight_bytes(self) -> int:
        """Bytes of both models' weights."""
        modules = [self.target.module, self.drafter.network] if self.drafter else [self.target.module]
        return sum(tensor.nbytes for module in modules for _, tensor in tree_flatten(module.parameters()))
