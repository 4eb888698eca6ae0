"""Train a drafter for a target of your own.

TARGET_FOLDER holds a target in mlx-lm's format. DATA is plain text, or JSON lines with `messages` (and, if wanted,
`tools`, `enable_thinking`, `reasoning_effort`) or with `text`. Best are answers that the target itself has written:
those are what the drafter has to guess. OUT_FOLDER becomes the drafter. Stop it with Ctrl-C whenever you like; what
it has learnt is saved, and --resume goes on from there.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import mlx.core as mx
from drafter_training.data import Corpus, Piece
from drafter_training.evaluation import load_drafter, tokens_per_round
from drafter_training.losses import Objective
from drafter_training.network import Shape, drafter_json, fresh_network, parsed, save_drafter
from drafter_training.teacher import Teacher, load_teacher, mask_token
from drafter_training.trainer import Lessons, Schedule, Trainer
from mlx.utils import tree_flatten

from dflash2_mlx.errors import DFlash2Error, LoadError, UsageError

REPORT_EVERY = 50  # steps
ESTIMATE_EVERY = 4  # reports
MEASURED_PROMPTS = 24
DEFAULT_STEPS = 2000
STATE = "training_state.safetensors"


class Session:
    """A training in its folder: the parts that make a step, and its checkpoint."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out
        self._refuse_overwriting()
        self.teacher: Teacher = load_teacher(options.target, options.taps)
        self.corpus = Corpus(options.data, self.teacher.tokenizer, longest=options.seq, seed=options.seed)
        self.raw = drafter_json(self.teacher, _shape(options), mask_token(self.teacher, options.mask_token))
        config = parsed(self.raw, self.out)
        self.kind = config.kind
        self.schedule = _schedule(options)
        self.objective = Objective(config, self.teacher)
        self.trainer = Trainer(fresh_network(config, self.teacher, options.seed), self.objective, self.schedule)
        self.lessons = Lessons(self.corpus, self.teacher, self.schedule, options.block_size)
        if options.resume:
            self.trainer.restore(self.out / STATE)

    def save(self, *, final: bool = False) -> None:
        """Write the drafter, and what is needed to go on unless the training has ended."""
        save_drafter(self.trainer.network, self.raw, self.out)
        if final:
            (self.out / STATE).unlink(missing_ok=True)
            return
        self.trainer.save(self.out / STATE)

    def _refuse_overwriting(self) -> None:
        if self.options.resume and not (self.out / STATE).is_file():
            raise LoadError(f"{self.out} holds no {STATE} to go on from. Leave out --resume to begin anew.")
        if not self.options.resume and (self.out / "model.safetensors").exists():
            raise UsageError(f"{self.out} already holds a model. Go on with --resume, or give another OUT_FOLDER.")


def train(options: argparse.Namespace) -> None:
    """The whole training, with its reports. Raises: DFlash2Error; KeyboardInterrupt after a checkpoint."""
    session = Session(options)
    trainer = session.trainer
    size = sum(tensor.size for _, tensor in tree_flatten(trainer.network.parameters()))
    say(
        f"{session.kind} drafter of {size / 1e6:.2f} M parameters, features after layers {list(session.teacher.taps)}, "
        f"mask token {session.raw['dflash_config']['mask_token_id']}; {len(session.corpus)} documents"
    )
    try:
        held_back = session.corpus.held_back()
        _steps(session, held_back)
    except KeyboardInterrupt:
        if trainer.step:
            session.save()
            say(f"stopped after step {trainer.step}; {options.out} holds the drafter so far. Go on with --resume.")
        raise
    session.save(final=True)
    say(f"{trainer.step} steps in {trainer.seconds / 60:.1f} min; the drafter is in {options.out}")
    _measure(session, held_back)


def _steps(session: Session, held_back: list[Piece]) -> None:
    trainer, schedule = session.trainer, session.schedule
    began = time.monotonic() - trainer.seconds
    saved = mark = trainer.seconds
    estimate_on = session.lessons.held_back(held_back)
    losses: list[float] = []
    tokens = 0
    for task, count in session.lessons.tasks(session.options.seed + trainer.step):
        if schedule.progress(trainer.step, trainer.seconds) >= 1.0:
            break
        losses.append(trainer.learn(task))
        tokens += count
        trainer.seconds = time.monotonic() - began
        if trainer.step % REPORT_EVERY:
            continue
        line = f"step {trainer.step} loss {statistics.fmean(losses):.3f}"
        if trainer.step % (REPORT_EVERY * ESTIMATE_EVERY) == 0:
            guesses = [session.objective.tokens_per_round(trainer.network, task) for task in estimate_on]
            line += f", about {statistics.fmean(guesses):.2f} tokens per round on held-back data"
        speed = tokens / max(1e-9, trainer.seconds - mark)
        say(f"{line}, {speed:.0f} tokens/s, {trainer.seconds:.0f} s ({_left(session)})")
        losses, tokens, mark = [], 0, trainer.seconds
        if trainer.seconds - saved > 60 * session.options.save_every:
            session.save()
            saved = trainer.seconds


def _left(session: Session) -> str:
    progress = session.schedule.progress(session.trainer.step, session.trainer.seconds)
    return f"{100 * progress:.0f} %"


def _measure(session: Session, held_back: list[Piece]) -> None:
    """What the saved drafter gives, loaded and run as at inference."""
    drafter = load_drafter(session.out, session.teacher)
    widths = sorted({min(5, drafter.block_size), drafter.block_size})
    for width in widths:
        rate = tokens_per_round(session.teacher, drafter, held_back[:MEASURED_PROMPTS], width)
        say(f"measured: {rate:.2f} tokens per round at block size {width}, greedy, on held-back prompts")


def say(line: str) -> None:
    """Progress goes to stderr at once."""
    print(line, file=sys.stderr, flush=True)


def _shape(options: argparse.Namespace) -> Shape:
    return Shape(
        method=options.method,
        layers=options.layers,
        intermediate=options.intermediate,
        heads=options.heads,
        kv_heads=options.kv_heads,
        head_dim=options.head_dim,
        window=options.window,
        block_size=options.block_size,
        selector_rank=options.selector_rank,
        selector_top_k=options.selector_top_k,
        conv_group_size=options.conv_group_size,
    )


def _schedule(options: argparse.Namespace) -> Schedule:
    steps = DEFAULT_STEPS if options.steps is None and options.minutes is None else options.steps
    return Schedule(
        steps=steps,
        minutes=options.minutes,
        warm_up=options.warm_up,
        rate=options.lr,
        batch=options.batch,
        anchors=options.anchors,
        passes=options.passes,
        seed=options.seed,
    )


def _whole(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _layer_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of layer numbers, as in 1,4,7") from error


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("target", metavar="TARGET_FOLDER", type=Path)
    out.add_argument("data", metavar="DATA", type=Path)
    out.add_argument("out", metavar="OUT_FOLDER", type=Path)
    out.add_argument("--method", choices=("dflash2", "dflash1"), default="dflash2", help="default: %(default)s")
    shape = out.add_argument_group("the drafter")
    shape.add_argument("--layers", type=_whole, default=2, help="default: %(default)s")
    shape.add_argument("--intermediate", type=_whole, help="of the MLPs; default: the target's")
    shape.add_argument("--heads", type=_whole, help="query heads; default: the target's")
    shape.add_argument("--kv-heads", type=_whole, help="default: the target's")
    shape.add_argument("--head-dim", type=_whole, help="default: the target's")
    shape.add_argument("--window", type=_whole, default=96, help="positions it looks back; default: %(default)s")
    shape.add_argument("--block-size", type=_whole, default=8, help="rows drafted at most, anchor included; default: 8")
    shape.add_argument(
        "--taps", type=_layer_numbers, help="target layers to read, as in 1,4,7; default: 3 to 5 of them"
    )
    shape.add_argument("--selector-rank", type=_whole, default=64, help="default: %(default)s")
    shape.add_argument("--selector-top-k", type=_whole, default=16, help="candidates a row; default: %(default)s")
    shape.add_argument("--conv-group-size", type=_whole, default=16, help="default: %(default)s")
    shape.add_argument("--mask-token", help="id or text; default: a token named mask, else one that no text contains")
    work = out.add_argument_group("the training")
    work.add_argument("--steps", type=_whole, help=f"default: {DEFAULT_STEPS}, unless --minutes is given")
    work.add_argument("--minutes", type=_positive, help="end after so long; the learning rate falls accordingly")
    work.add_argument("--batch", type=_whole, default=16, help="pieces a step; fewer take less memory; default: 16")
    work.add_argument("--seq", type=_whole, default=256, help="longest piece, in tokens; default: %(default)s")
    work.add_argument("--anchors", type=_whole, default=32, help="blocks drafted a piece; default: %(default)s")
    work.add_argument("--passes", type=_whole, default=3, help="over each piece, with new blocks; default: %(default)s")
    work.add_argument("--lr", type=_positive, default=0.02, help="Muon's peak learning rate; default: %(default)s")
    work.add_argument("--warm-up", type=_whole, default=30, help="steps; default: %(default)s")
    work.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    work.add_argument("--save-every", type=_positive, default=5.0, help="minutes between checkpoints; default: 5")
    work.add_argument("--resume", action="store_true", help="go on from the checkpoint in OUT_FOLDER, same options")
    return out


def main() -> int:
    """Exit status: 0, 1 for an error that is explained in one line, 2 for a wrong option, 130 for Ctrl-C."""
    options = parser().parse_args()
    mx.random.seed(options.seed)
    try:
        train(options)
    except DFlash2Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
