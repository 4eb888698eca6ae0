"""mlx-lm's model of an opened target, and how weight tables lie in memory. Knows mlx and mlx-lm."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from dflash2_mlx.errors import WeightsError
from dflash2_mlx.loading.checks import mlx_quantization
from dflash2_mlx.store.opening import OpenedModel

_LONGEST = 300  # characters of another's message


def load_model(target: OpenedModel) -> Any:
    """mlx-lm's model with the tensors that the index names; those it has no use for (vision, mtp) are never read."""
    from mlx_lm import utils

    settings = mlx_quantization(target)
    added = {"quantization": dict(settings)} if settings else None
    try:
        with _only(target) as exact, redirect_stdout(sys.stderr):
            model, _ = utils.load_model(exact, False, True, added)  # not lazy, strict
        model(mx.array([[0]]))  # the graph alone, never evaluated: a config that cannot compute is told now
    except Exception as error:  # mlx-lm raises what Python does with a config it cannot build; the folder's fault
        raise cannot_load(target.folder, "mlx-lm cannot load this model", error) from error
    return model


def cannot_load(folder: Path, what: str, error: Exception) -> WeightsError:
    """The line for what a library raised over the files in `folder`."""
    why = " ".join(str(error).split())[:_LONGEST].rstrip(" .:") or type(error).__name__
    return WeightsError(f"{folder}: {what}: {why}. Fetch it again.")


def lay_out_for_cpu(module: nn.Module) -> None:
    """Without Metal, keep unquantised weight tables column by column: same values, same shapes, same sums.

    The products of several rows then read memory in order. Measured with the plain Linux wheel on the bundled pair:
    a verifying pass over 5 rows takes 8.3 ms instead of 13.1, a plain step 4.1 instead of 4.6, with equal logits.
    """
    if mx.metal.is_available():
        return
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            part.weight = mx.contiguous(part.weight.T).T
            mx.eval(part.weight)  # one at a time, so that only one table exists twice


@contextmanager
def _only(target: OpenedModel) -> Iterator[Path]:
    """A folder in which `model*.safetensors`, which is what mlx-lm reads, are exactly the target's files: its own, or
    one of links, gone after use."""
    wanted = {file.path.name for file in target.weights}
    if wanted == {name for name in target.files if name.startswith("model") and name.endswith(".safetensors")}:
        yield target.folder
        return
    with TemporaryDirectory(prefix="dflash2-mlx-") as links:
        for name in target.files:
            if name.endswith(".json"):
                (Path(links) / name).symlink_to((target.folder / name).resolve())
        for number, file in enumerate(target.weights):
            (Path(links) / f"model-{number}.safetensors").symlink_to(file.path.resolve())
        yield Path(links)
