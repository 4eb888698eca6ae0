"""Take a prompt in. Knows Target and Drafter by protocol."""

from collections.abc import Iterator

from dflash2_mlx.engine.progress import Task
from dflash2_mlx.engine.protocols import Drafter, Target
from dflash2_mlx.events import Prefilling
from dflash2_mlx.targets.limits import TAIL_ROWS


def take_in(target: Target, drafter: Drafter | None, task: Task, end: int | None = None) -> Iterator[Prefilling]:
    """Bring the first `end` prompt tokens into the target's cache and the drafter's sight.

    end None: all but those that the first step takes along. Tokens that the cache already holds are not run again.
    """
    prompt, chunk, start = task.prompt, task.params.prefill_chunk, target.position
    assert start < len(prompt), f"{start} of {len(prompt)} prompt tokens are in the cache: none is left to run"
    if end is None:
        tail = min(len(prompt) - start, chunk or TAIL_ROWS, TAIL_ROWS)
        end = len(prompt) - target.rows_at_once(tail, len(prompt))
    keep = drafter.context_rows if drafter else 0
    yield Prefilling(start, len(prompt))
    for done, features in target.prefill(prompt[start:end], chunk=chunk, keep=keep):
        if drafter and features is not None:
            drafter.observe(features, target.position)
        yield Prefilling(start + done, len(prompt))
