"""What every command that loads a pair does first: tell the choice, look at the memory, offer the download. No MLX."""

from dflash2_mlx.cli.models import choose_model
from dflash2_mlx.cli.out import Out
from dflash2_mlx.cli.pull import offer_download
from dflash2_mlx.config import LoadParams
from dflash2_mlx.memory.verdict import USUAL_CONTEXT, check_memory
from dflash2_mlx.store.opening import OpenedPair, open_pair

_BYTES_A_TOKEN = 4  # about, of text in any language
_TEMPLATE_TOKENS = 256


def chosen_model(model: str | None) -> str:
    """The model to answer with; a choice that the user did not make is told."""
    chosen, why = choose_model(model)
    if why:
        Out().note(f"dflash2-mlx: {why}")
    return chosen


def get_ready(load: LoadParams, context: int | None = None) -> OpenedPair:
    """The pair, opened for loading: refuse or warn where the memory is short; offer to fetch what is not there.

    context: tokens of prompt and answer together, None = the usual number. Raises: LoadError.
    """
    out, opened = Out(), open_pair(load)
    warning = check_memory(opened, context)
    if offer_download(opened, out):
        opened = open_pair(load)  # the files tell more than the table of known pairs
        warning = check_memory(opened, context)
    if warning:
        out.note(f"dflash2-mlx: {warning}")
    return opened


def expected_context(text: str, max_tokens: int | None) -> int:
    """About how many tokens a prompt and its answer take; an answer without a limit fills up to the usual number."""
    prompt = len(text.encode()) // _BYTES_A_TOKEN + _TEMPLATE_TOKENS
    return max(prompt, USUAL_CONTEXT) if max_tokens is None else prompt + max_tokens
