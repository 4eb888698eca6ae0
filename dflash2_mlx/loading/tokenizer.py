"""The tokenizer, and what goes with it: the ids that end an answer and how the model wants to be sampled."""

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from dflash2_mlx.config import SamplingParams
from dflash2_mlx.errors import ConfigError, LoadError, UsageError
from dflash2_mlx.store.opening import OpenedModel, OpenedPair

_TURN_END = "<|im_end|>"
_SETTINGS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def load_tokenizer(target: OpenedModel) -> Any:
    """mlx-lm's tokenizer of the target. Raises: LoadError where its files make none."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # read on import; its advice is not for our users
    from mlx_lm import utils
    from transformers.utils import logging as talk

    if os.environ.get("TRANSFORMERS_VERBOSITY") == "error":
        talk.set_verbosity_error()  # transformers may have been imported before the variable was set
    try:
        with redirect_stdout(sys.stderr):
            tokenizer = utils.load_tokenizer(target.folder, {"trust_remote_code": False})
    except Exception as error:  # transformers raises what it likes; all of it is the folder's fault
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LoadError(f"{target.folder}: no usable tokenizer ({first}). Fetch the model again.") from error
    if not tokenizer.vocab_size:
        raise LoadError(f"{target.folder}: no usable tokenizer (its vocabulary is empty). Fetch the model again.")
    return tokenizer


def end_tokens(tokenizer: Any, configs: tuple[Mapping[str, object], ...]) -> frozenset[int]:
    """Ids that end an answer: those of the configs, of the tokenizer, and the end of a ChatML turn."""
    ids = set(tokenizer.eos_token_ids)
    for config in configs:
        value = config.get("eos_token_id")
        ids.update(i for i in (value if isinstance(value, list) else [value]) if type(i) is int and 0 <= i < 2**31)
    turn_end = tokenizer.convert_tokens_to_ids(_TURN_END) if _TURN_END in tokenizer.get_vocab() else None
    return frozenset(ids | ({turn_end} if isinstance(turn_end, int) else set()))


def sampling_defaults(pair: OpenedPair, generation: Mapping[str, object]) -> dict[str, float]:
    """The sampling settings of the target's generation_config; greedy where it says do_sample: false.

    Without one: what the makers of a known target recommend, else greedy. Raises: ConfigError for an impossible one.
    """
    if not generation:
        return dict(pair.known.sampling) if pair.known else {}
    if generation.get("do_sample") is False:
        return {"temperature": 0.0}
    found = {name: generation.get(name) for name in _SETTINGS}
    asked = {k: v for k, v in found.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    if isinstance(top_k := asked.get("top_k"), float) and top_k.is_integer():
        asked["top_k"] = int(top_k)
    try:
        kept = SamplingParams(**asked)  # type: ignore[arg-type]  # refuses what is none
    except UsageError as error:
        raise ConfigError(f"{pair.target.folder}/generation_config.json: {error} Or remove the line.") from None
    return {name: getattr(kept, name) for name in asked}
