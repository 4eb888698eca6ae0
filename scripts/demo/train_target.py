"""Train the demo target on the rendered corpus; knows batches and optimisers, leaves the arithmetic to model.py.

Usage: python scripts/demo/train_target.py CORPUS_DIR OUT_DIR [--steps N] [--init CHECKPOINT_DIR]
Every worker is a process with one thread (a core each; quicker than one process with two threads, and not thrown
off by neighbours); the workers average their gradients.
OUT_DIR must hold the files that tokenizer.py writes; the same machine, corpus and options give the same weights.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from model import Target, TargetConfig, load_weights, save_weights
from tokenizer import SPECIALS, VOCAB_SIZE, Encoded, encode, read_records
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.multiprocessing import spawn
from torch.nn import functional

MULTIPLE = 8  # of row lengths
LONGEST = 768
POOL = 64  # batches that are sorted by length together
THINK_END = SPECIALS.index("</think>")
FREE_FORM = ("story", "letter", "diary", "travel")  # their openings are choices, not knowledge
LEAST_WEIGHTS = {"sums": 8.0, "tools": 3.0}  # answers whose later tokens have to be worked out, not recited
OPENING_FADE = 2.0  # tokens over which the extra weight of an answer's opening fades by e


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    corpus: Path
    out: Path
    init: Path | None
    steps: int
    warm_up: int
    batch_tokens: int
    muon_rate: float
    adam_rate: float
    prompt_weight: float
    opening_weight: float
    seed: int
    workers: int
    save_every: int


@dataclass(frozen=True)
class Batch:
    """Conversations of similar length, one a row, so that every row starts from a zero state as at inference."""

    ids: Tensor  # [B, L], padded at the right
    weights: Tensor  # [B, L - 1], of each next token; zero on the padding
    openings: Tensor  # [B, L - 1] bool, next tokens that choose which answer is given
    replies: Tensor  # [B, L - 1] bool, next tokens that the assistant says
    kinds: list[str]


def batches(items: list[Encoded], options: Options) -> Iterator[Batch]:
    """Endless batches of about `batch_tokens`; the order depends on the seed alone."""
    rng = random.Random(options.seed)
    while True:
        order = rng.sample(items, len(items))
        size = POOL * options.batch_tokens // 64
        for start in range(0, len(order), size):
            groups: list[list[Encoded]] = [[]]
            for item in sorted(order[start : start + size], key=lambda item: len(item.ids)):
                width = -(-len(item.ids) // MULTIPLE) * MULTIPLE
                if groups[-1] and (len(groups[-1]) + 1) * width > options.batch_tokens:
                    groups.append([])
                groups[-1].append(item)
            rng.shuffle(groups)
            yield from (collate(group, options) for group in groups)


def collate(group: list[Encoded], options: Options) -> Batch:
    """The padded tensors of one batch."""
    width = -(-max(len(item.ids) for item in group) // MULTIPLE) * MULTIPLE
    ids = torch.zeros(len(group), width, dtype=torch.long)
    weights = torch.zeros(len(group), width - 1)
    openings, replies = (torch.zeros(len(group), width - 1, dtype=torch.bool) for _ in range(2))
    for row, item in enumerate(group):
        length = len(item.ids)
        ids[row, :length] = torch.tensor(item.ids)
        replies[row, : length - 1] = torch.tensor(item.reply[1:])
        places = places_in_parts(item)[1:]
        openings[row, : length - 1] = torch.tensor([place == 0 for place in places])
        weights[row, : length - 1] = torch.tensor([token_weight(item.kind, place, options) for place in places])
    return Batch(ids, weights, openings, replies, [item.kind for item in group])


def places_in_parts(item: Encoded) -> list[int | None]:
    """For every token its place in its part of the assistant's turn (the thought, then the answer); None elsewhere.

    The blank line between the two parts has place -1.
    """
    places: list[int | None] = []
    place = -1
    for token, said in zip(item.ids, item.reply, strict=True):
        place = place + 1 if said else -1
        places.append(place if said else None)
        if token == THINK_END:
            place = -2
    return places


def token_weight(kind: str, place: int | None, options: Options) -> float:
    """More for the few tokens that choose the answer: what follows them is learnt by heart at once."""
    if place is None:
        return options.prompt_weight
    if place < 0 or kind in FREE_FORM:
        return 1.0
    opening = 1.0 + (options.opening_weight - 1.0) * math.exp(-place / OPENING_FADE)
    return max(opening, LEAST_WEIGHTS.get(kind, 1.0))


def optimisers(target: Target, options: Options) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for the rest."""
    matrices, others = [], []
    for name, weight in target.named_parameters():
        is_matrix = weight.ndim == 2 and min(weight.shape) >= 32 and "embed" not in name
        (matrices if is_matrix else others).append(weight)
    return [
        torch.optim.Muon(matrices, lr=options.muon_rate, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(others, lr=options.adam_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def share_of_rate(step: int, options: Options) -> float:
    """The learning rate's share of its peak: a short ramp, then linear down to zero."""
    return min((step + 1) / options.warm_up, (options.steps - step) / (options.steps - options.warm_up))


class Losses:
    """Running mean loss of reply tokens, in total and per kind."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}
        self.openings = [0.0, 0.0]

    def add(self, batch: Batch, losses: Tensor) -> None:
        """losses: [B, L - 1], per token, without gradient."""
        reply = batch.replies.float()
        first = batch.openings.float()
        self.openings[0] += float((losses * first).sum())
        self.openings[1] += float(first.sum())
        for kind, loss, count in zip(batch.kinds, (losses * reply).sum(1).tolist(), reply.sum(1).tolist(), strict=True):
            entry = self.sums.setdefault(kind, [0.0, 0.0])
            entry[0] += loss
            entry[1] += count

    def __str__(self) -> str:
        return ", ".join(f"{kind} {loss / max(count, 1):.3f}" for kind, (loss, count) in sorted(self.sums.items()))

    def mean(self) -> float:
        """The mean over all kinds' tokens."""
        return sum(loss for loss, _ in self.sums.values()) / max(1, sum(count for _, count in self.sums.values()))


def average_gradients(target: Target) -> None:
    """Replace every gradient by its mean over the workers."""
    gradients = [weight.grad for weight in target.parameters() if weight.grad is not None]
    joined = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(joined)
    joined /= dist.get_world_size()
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, mean in zip(gradients, joined.split(sizes), strict=True):
        gradient.copy_(mean.view_as(gradient))


def train_step(target: Target, batch: Batch, steppers: list[torch.optim.Optimizer]) -> Tensor:
    """One update. Returns the loss of every next token [B, L - 1], without gradient."""
    kept = batch.weights > 0
    logits = target.logits(target.hidden(batch.ids)[:, :-1][kept])  # [tokens, V]
    losses = functional.cross_entropy(logits, batch.ids[:, 1:][kept], reduction="none")
    weights = batch.weights[kept]
    ((losses * weights).sum() / weights.sum()).backward()
    average_gradients(target)
    nn.utils.clip_grad_norm_(target.parameters(), 1.0)
    for stepper in steppers:
        stepper.step()
        stepper.zero_grad(set_to_none=True)
    out = torch.zeros_like(batch.weights)
    out[kept] = losses.detach()
    return out


def save(target: Target, folder: Path, tokenizer: Tokenizer) -> None:
    """Write the weights and config.json beside the tokenizer."""
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    save_weights(target, folder, eos_token_id=ends, pad_token_id=ends[1])


def conversations(options: Options, tokenizer: Tokenizer) -> list[Encoded]:
    """The training set as ids, without the few that are too long."""
    items = [encode(record, tokenizer) for record in read_records(options.corpus / "train.jsonl")]
    kept = [item for item in items if len(item.ids) <= LONGEST]
    tokens = sum(len(item.ids) for item in kept)
    print(
        f"{len(kept)} conversations of {len(items)}, {tokens} tokens, longest {max(len(i.ids) for i in items)}",
        flush=True,
    )
    return kept


def work(rank: int, options: Options, rendezvous: str) -> None:
    """One worker: take every `workers`-th batch; the first one speaks and saves."""
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=options.workers)
    tokenizer = Tokenizer.from_file(str(options.out / "tokenizer.json"))
    source = itertools.islice(batches(conversations(options, tokenizer), options), rank, None, options.workers)
    target = load_weights(options.init) if options.init else Target(TargetConfig(vocab_size=VOCAB_SIZE))
    steppers = optimisers(target, options)
    groups = [group for stepper in steppers for group in stepper.param_groups]
    peaks = [group["lr"] for group in groups]
    recent, by_kind, seen, began = Losses(), Losses(), 0, time.monotonic()
    for step in range(options.steps):
        batch = next(source)
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * share_of_rate(step, options)
        losses = train_step(target, batch, steppers)
        if rank:
            continue
        recent.add(batch, losses)
        by_kind.add(batch, losses)
        seen += int((batch.weights > 0).sum()) * options.workers
        if (step + 1) % 50 == 0:
            seconds = time.monotonic() - began
            first = recent.openings[0] / max(1.0, recent.openings[1])
            rate = f"{seen / seconds:.0f} tok/s {seconds:.0f} s"
            print(f"{step + 1} loss {recent.mean():.4f}, of first tokens {first:.4f} {rate}", flush=True)
            recent = Losses()
        if (step + 1) % 500 == 0:
            print(f"  {by_kind}", flush=True)
            by_kind = Losses()
        if (step + 1) % options.save_every == 0 or step + 1 == options.steps:
            save(target, options.out, tokenizer)
    dist.destroy_process_group()


def train(options: Options) -> None:
    """Run the workers to the end; the weights in OUT_DIR are renewed every `save_every` steps."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, args=(options, f"{folder}/rendezvous"), nprocs=options.workers)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--init", type=Path, help="folder of weights to go on from")
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--warm-up", type=int, default=60)
    parser.add_argument("--batch-tokens", type=int, default=1536, help="of each worker")
    parser.add_argument("--muon-rate", type=float, default=0.02)
    parser.add_argument("--adam-rate", type=float, default=3e-3)
    parser.add_argument("--opening-weight", type=float, default=12.0, help="of the first token of an answer")
    parser.add_argument("--prompt-weight", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=500)
    train(Options(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
