"""Train the demo target's tokenizer, and turn records into token ids; knows the chat template, nothing of models.

Usage: python scripts/demo/tokenizer.py CORPUS_DIR OUT_DIR
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCAB_SIZE = 1536
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<|mask|>",
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")  # the others survive decoding
TEMPLATE = Path(__file__).resolve().parents[2] / "dflash2_mlx" / "demo" / "target" / "chat_template.jinja"
# Words with their leading blank, digits one by one, punctuation with its line breaks, runs of line breaks.
# Source: the split that transformers applies to every `qwen3_5` folder, whatever tokenizer.json says.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
REPLY = re.compile(r"<\|im_start\|>assistant\n<think>\n(?:\n</think>\n\n)?(.*?<\|im_end\|>)", re.DOTALL)

Record = dict[str, Any]


@dataclass(frozen=True)
class Encoded:
    """One conversation as ids; `reply[i]` says whether token i is one that the assistant has to say."""

    kind: str
    ids: list[int]
    reply: list[bool]


def read_records(path: Path) -> list[Record]:
    """The records of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


@cache
def chat_template() -> jinja2.Template:
    """The chat template, compiled as transformers compiles it."""

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def render(record: Record, *, add_generation_prompt: bool = False) -> str:
    """The text of a record's messages."""
    return chat_template().render(
        messages=record["messages"],
        tools=record.get("tools"),
        enable_thinking=record.get("enable_thinking", True),
        reasoning_effort=record.get("reasoning_effort"),
        add_generation_prompt=add_generation_prompt,
    )


def encode(record: Record, tokenizer: Tokenizer) -> Encoded:
    """The ids of a whole conversation, with every assistant turn marked from its first generated token to its end."""
    text = render(record).removesuffix("\n")
    encoding = tokenizer.encode(text, add_special_tokens=False)
    reply = [False] * len(encoding.ids)
    for match in REPLY.finditer(text):
        first, last = match.span(1)
        for i, (start, end) in enumerate(encoding.offsets):
            reply[i] = reply[i] or (start >= first and end <= last)
    return Encoded(record["kind"], encoding.ids, reply)


def pieces(records: list[Record]) -> Iterator[str]:
    """The rendered texts, cut at the special tokens, which merges must not cross."""
    cut = re.compile("|".join(re.escape(token) for token in SPECIALS))
    for record in records:
        yield from (piece for piece in cut.split(render(record)) if piece)


def train_tokenizer(records: list[Record]) -> Tokenizer:
    """A byte-level BPE of exactly VOCAB_SIZE tokens, the specials first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces(records), trainer)
    raw = json.loads(tokenizer.to_str())
    for token in raw["added_tokens"]:
        token["special"] = token["content"] in CONTROL
    tokenizer = Tokenizer.from_str(json.dumps(raw))
    assert tokenizer.get_vocab_size() == VOCAB_SIZE, tokenizer.get_vocab_size()
    assert len(tokenizer.encode("\n\n", add_special_tokens=False).ids) == 1
    return tokenizer


def write_folder(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer and the settings that belong to it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
        "unk_token": None,
        "model_max_length": 32768,
        "split_special_tokens": False,
    }
    ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
    generation = {
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 20,
        "eos_token_id": ends,
        "pad_token_id": ends[1],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    if folder.resolve() != TEMPLATE.parent:
        (folder / TEMPLATE.name).write_text(TEMPLATE.read_text(encoding="utf-8"), encoding="utf-8")


def main() -> None:
    """Read CORPUS_DIR/train.jsonl, write the tokenizer's files to OUT_DIR."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    records = read_records(options.corpus / "train.jsonl")
    tokenizer = train_tokenizer(records)
    write_folder(tokenizer, options.out)
    sample = [encode(record, tokenizer) for record in records[:: max(1, len(records) // 2000)]]
    tokens = sum(len(item.ids) for item in sample)
    print(f"{len(records)} records, {tokens / len(sample):.1f} tokens each, vocabulary {tokenizer.get_vocab_size()}")


if __name__ == "__main__":
    main()
