"""Steps of the optimiser over the lessons of a corpus, and what is needed to go on later. Knows MLX's optimisers."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten

from dflash2_mlx.errors import LoadError
from dflash2_mlx.models.layers import DraftNetwork
from drafter_training.data import POOL_ROWS, Corpus, Piece, by_length
from drafter_training.lessons import Task, make_task
from drafter_training.losses import Objective
from drafter_training.teacher import Lesson, Teacher

POOL_BYTES = 2**30  # features that are held at a time
ADAM_SHARE = 0.15  # AdamW's rate (norms, codebooks, kernels) as a share of Muon's (matrices)
LARGEST_NORM = 1.0  # of all gradients together
HELD_BACK_ANCHORS = 8
FORWARD_ROWS = 16  # pieces the target takes in at a time


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how hard to train. steps, minutes: whichever ends first."""

    steps: int | None
    minutes: float | None
    warm_up: int
    rate: float
    batch: int
    anchors: int
    passes: int
    seed: int

    def progress(self, step: int, seconds: float) -> float:
        """The share of the training that is done, from 0 to 1."""
        by_step = step / self.steps if self.steps else 0.0
        by_time = seconds / (60 * self.minutes) if self.minutes else 0.0
        return min(1.0, max(by_step, by_time))

    def rate_at(self, step: int, progress: float) -> float:
        """A short ramp, then linear down to a fiftieth."""
        return self.rate * min((step + 1) / self.warm_up, max(0.02, 1.0 - progress))


class Lessons:
    """Endless tasks: pools of pieces go through the target once and are trained on for several passes."""

    def __init__(self, corpus: Corpus, teacher: Teacher, schedule: Schedule, block_size: int) -> None:
        self._corpus, self._teacher, self._schedule = corpus, teacher, schedule
        self._block_size = block_size
        self._token_bytes = len(teacher.taps) * teacher.target.hidden_size * teacher.dtype.size

    def tasks(self, seed: int) -> Iterator[tuple[Task, int]]:
        """Each with the number of tokens in its pieces."""
        chance = random.Random(seed)
        before: list[Piece] | None = None
        lessons: list[Lesson] = []
        for pool in self._corpus.pools(seed, self._full):
            if pool is not before:
                lessons = learn(self._teacher, pool)
            before = pool
            for _ in range(self._schedule.passes):
                for places in by_length(pool, self._schedule.batch, chance):
                    pieces = [pool[place] for place in places]
                    width = self._width(chance)
                    task = make_task(
                        pieces, [lessons[p] for p in places], anchors=self._schedule.anchors, width=width, chance=chance
                    )
                    yield task, sum(len(piece.ids) for piece in pieces)

    def _full(self, pool: Sequence[Piece]) -> bool:
        return len(pool) >= POOL_ROWS or sum(len(p.ids) for p in pool) * self._token_bytes >= POOL_BYTES

    def _width(self, chance: random.Random) -> int:
        """Every other block is whole; the others are of any width, since block rows see all masks to their right."""
        return self._block_size if chance.random() < 0.5 else chance.randint(2, self._block_size)

    def held_back(self, pieces: list[Piece]) -> list[Task]:
        """The same whole blocks every time, for the estimate."""
        chance = random.Random(0)
        lessons = learn(self._teacher, pieces)
        return [
            make_task(
                [pieces[place] for place in places],
                [lessons[place] for place in places],
                anchors=HELD_BACK_ANCHORS,
                width=self._block_size,
                chance=chance,
            )
            for places in by_length(pieces, self._schedule.batch, chance)
        ]


def learn(teacher: Teacher, pieces: list[Piece]) -> list[Lesson]:
    """The lessons of `pieces`, in their order; similar lengths go through the target together."""
    order = sorted(range(len(pieces)), key=lambda place: len(pieces[place].ids))
    lessons: dict[int, Lesson] = {}
    for first in range(0, len(order), FORWARD_ROWS):
        places = order[first : first + FORWARD_ROWS]
        lessons |= zip(places, teacher.lessons([pieces[place].ids for place in places]), strict=True)
    return [lessons[place] for place in range(len(pieces))]


class Trainer:
    """A network and its optimisers: Muon for the matrices, AdamW for everything else."""

    def __init__(self, network: DraftNetwork, objective: Objective, schedule: Schedule) -> None:
        self.network, self._schedule = network, schedule
        self.step, self.seconds = 0, 0.0
        self._muon = optim.Muon(learning_rate=schedule.rate, momentum=0.95, weight_decay=0.0)
        self._adam = optim.AdamW(learning_rate=schedule.rate, betas=[0.9, 0.95], weight_decay=0.0, bias_correction=True)
        self._optimizer = optim.MultiOptimizer([self._muon, self._adam], [_is_matrix])
        self._optimizer.init(network.trainable_parameters())
        self._gradient = nn.value_and_grad(network, lambda task: objective.loss(network, task))
        network.train()

    def learn(self, task: Task) -> float:
        """One update. Returns the loss before it."""
        rate = self._schedule.rate_at(self.step, self._schedule.progress(self.step, self.seconds))
        self._muon.learning_rate, self._adam.learning_rate = rate, rate * ADAM_SHARE
        loss, gradients = self._gradient(task)
        gradients, _ = optim.clip_grad_norm(gradients, LARGEST_NORM)  # type: ignore[no-untyped-call]
        self._optimizer.update(self.network, gradients)
        mx.eval(loss, self.network.parameters(), self._optimizer.state)
        self.step += 1
        return float(loss.item())

    def save(self, file: Path) -> None:
        """Everything that `restore` needs, in float32."""
        parts = {"network": self.network.parameters(), "optimizer": self._optimizer.state}
        done = {"step": str(self.step), "seconds": str(self.seconds)}
        temporary = file.with_name("new.safetensors")
        mx.save_safetensors(str(temporary), dict(tree_flatten(parts)), metadata=done)
        temporary.replace(file)

    def restore(self, file: Path) -> None:
        """Go on where `save` was called. Raises: LoadError if the file belongs to a drafter of other sizes."""
        try:
            loaded = mx.load(str(file), return_metadata=True)
            assert isinstance(loaded, tuple)
            parts, done = tree_unflatten(list(loaded[0].items())), loaded[1]
            self.network.load_weights(tree_flatten(parts["network"]), strict=True)
            self._optimizer.state = parts["optimizer"]
            self.step, self.seconds = int(done["step"]), float(done["seconds"])
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise LoadError(f"{file} cannot be continued ({reason}). Use the options it was begun with.") from error


def _is_matrix(name: str, tensor: mx.array) -> bool:
    return tensor.ndim == 2 and min(tensor.shape) >= 8 and "codebook" not in name and "kernel_projection" not in name
