"""Ask the trained demo target its held-out questions with plain mlx-lm, on the CPU; knows nothing of drafting.

Usage: python scripts/demo/check_target.py TARGET_DIR CORPUS_DIR [--parity PYTHON_WITH_TORCH]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx_lm import load, stream_generate
from mlx_lm.tokenizer_utils import TokenizerWrapper

MAX_TOKENS = 320
TOLERANCE = 1e-3

Record = dict[str, Any]


def read_records(path: Path) -> list[Record]:
    """The records of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def prompt_of(record: Record, tokenizer: TokenizerWrapper) -> list[int]:
    """The ids that open the assistant's turn."""
    return tokenizer.apply_chat_template(
        record["messages"],
        tools=record.get("tools"),
        add_generation_prompt=True,
        enable_thinking=record.get("enable_thinking", True),
        reasoning_effort=record.get("reasoning_effort"),
    )


def answer(model: nn.Module, tokenizer: TokenizerWrapper, record: Record) -> tuple[str, bool]:
    """The greedy answer without its reasoning, and whether the model ended it itself."""
    text, reason = "", None
    for response in stream_generate(model, tokenizer, prompt_of(record, tokenizer), max_tokens=MAX_TOKENS):
        text += response.text
        reason = response.finish_reason
    if record.get("enable_thinking", True):
        _, closed, text = text.partition("</think>")
        if not closed:
            return "(the reasoning never ended)", False
    return text.strip(), reason == "stop"


def check(model: nn.Module, tokenizer: TokenizerWrapper, records: list[Record], wanted: str | None) -> None:
    """Print every wrong answer, then the accuracy per kind; an empty `expect` asks only for a finished answer."""
    right: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for record in records:
        kind = record["kind"] + (" (thinking)" if record.get("enable_thinking", True) else "")
        if wanted and record["kind"] != wanted:
            continue
        text, ended = answer(model, tokenizer, record)
        expected = record["expect"].strip()
        asked[kind] += 1
        if ended and text and expected in ("", text):
            right[kind] += 1
            continue
        turns = [message["content"] for message in record["messages"]]
        print(
            f"- {kind}: {turns}\n  expected {expected!r}\n  got      {text!r}{'' if ended else ' (not ended)'}",
            flush=True,
        )
    for kind, count in sorted(asked.items()):
        print(f"{kind:24} {right[kind]:4} of {count:4}  {100 * right[kind] / count:5.1f} %")
    print(
        f"{'all':24} {right.total():4} of {asked.total():4}  {100 * right.total() / max(1, asked.total()):5.1f} %",
        flush=True,
    )


def check_parity(model: nn.Module, folder: Path, python: Path) -> None:
    """Compare MLX's logits with those of the training code, which `python` runs."""
    script = Path(__file__).with_name("model.py")
    with tempfile.TemporaryDirectory() as temporary:
        reference = Path(temporary) / "reference.safetensors"
        subprocess.run([python, script, folder, reference], check=True)
        arrays = mx.load(str(reference))
        difference = mx.abs(model(arrays["ids"]) - arrays["logits"]).max().item()
    print(f"largest difference of logits, MLX against PyTorch: {difference:.1e}")
    if difference > TOLERANCE:
        raise SystemExit(f"the logits differ by more than {TOLERANCE}")


def main() -> None:
    """Read the command line and run the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--parity", type=Path, help="an interpreter that has torch: also compare the logits")
    parser.add_argument("--kind", help="ask the questions of one kind only")
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    model, tokenizer = load(str(options.target))
    print(
        f"tool calls {tokenizer.tool_call_start}, thinking {tokenizer.think_start}, ends {sorted(tokenizer.eos_token_ids)}"
    )
    if options.parity:
        check_parity(model, options.target, options.parity)
    for name in ("held_out.jsonl", "other.jsonl"):
        began = time.monotonic()
        print(f"== {name}", flush=True)
        check(model, tokenizer, read_records(options.corpus / name), options.kind)
        print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
