"""Replay golden vectors: `python scripts/parity.py FOLDER` compares every `NAME/` with `NAME.expected.safetensors`.

Prints, per variant, the largest absolute error of hidden states and logits and the share of equal draft tokens.
Exit 1 above 1e-4 or at any unequal token.
"""

import argparse
import json
import sys
from pathlib import Path

import mlx.core as mx

from dflash2_mlx.models.config import parse_drafter_config
from dflash2_mlx.models.drafter import DFlashDrafter, build_network

TOLERANCE = 1e-4


def replay(folder: Path, expected: dict[str, mx.array]) -> tuple[float, float, int, int]:
    """(hidden error, logits error, equal tokens, tokens) of one variant over all its rounds."""
    source = folder / "config.json"
    config = parse_drafter_config(json.loads(source.read_text()), str(source))
    network = build_network(config, mx.load(str(folder / "model.safetensors")))
    table, head = expected["embed_tokens"], expected["lm_head"]
    drafter = DFlashDrafter(config, network, lambda ids: table[ids], lambda hidden: hidden @ head.T)
    hidden_error = logits_error = 0.0
    equal = total = shown = 0
    rounds = zip(*(expected[key].tolist() for key in ("anchors", "context_rows", "block_sizes")), strict=True)
    for number, (anchor, rows, block_size) in enumerate(rounds):
        if rows:
            drafter.observe(expected["features"][shown : shown + rows], shown + rows)
        shown += rows
        wanted = {key: expected[f"cycle{number}.{key}"] for key in ("hidden", "logits", "draft")}
        draft, hidden, logits = _draft(drafter, anchor, block_size - 1)
        hidden_error = max(hidden_error, mx.abs(hidden - wanted["hidden"]).max().item())
        logits_error = max(logits_error, mx.abs(logits - wanted["logits"]).max().item())
        equal += int((draft == wanted["draft"]).sum().item())
        total += block_size - 1
    return hidden_error, logits_error, equal, total


def _draft(drafter: DFlashDrafter, anchor: int, count: int) -> tuple[mx.array, mx.array, mx.array]:
    """The draft and the hidden states and logits it was chosen from: the same block is drafted twice."""
    ids = mx.array([anchor])
    hidden = drafter.hidden(ids, count)
    logits = drafter.logits(hidden)
    mx.eval(hidden, logits)
    return drafter.propose(ids, count).tokens, hidden, logits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="holds NAME/ and NAME.expected.safetensors for each variant")
    folder = parser.parse_args().folder
    mx.set_default_device(mx.cpu)
    files = sorted(folder.glob("*.expected.safetensors"))
    if not files:
        print(f"{folder}: no NAME.expected.safetensors here. Give a folder of golden vectors.", file=sys.stderr)
        return 1
    failed = False
    print(f"{'variant':<28} {'hidden error':>12} {'logits error':>12} {'equal tokens':>14}")
    for file in files:
        name = file.name.removesuffix(".expected.safetensors")
        hidden_error, logits_error, equal, total = replay(folder / name, mx.load(str(file)))
        bad = not max(hidden_error, logits_error) < TOLERANCE or equal < total
        failed |= bad
        row = f"{name:<28} {hidden_error:>12.2e} {logits_error:>12.2e} {f'{equal}/{total}':>14}"
        print(f"{row}  FAILED" if bad else row)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
