"""Tiny tokenizers of the kinds that models use, built in memory."""

from collections.abc import Callable

import pytest
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tool_parsers import qwen3_coder
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "«né»")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")

# Behaves like Qwen3.8's: three effort words, system messages only in front, a user message needed, thinking opened.
TEMPLATE = """
{%- set effort = reasoning_effort if reasoning_effort is defined else 'xhigh' -%}
{%- if effort not in ['low', 'medium', 'xhigh'] -%}{{ raise_exception('Unknown reasoning effort: ' ~ effort ~ '.') }}
{%- endif -%}
{%- if messages | selectattr('role', 'equalto', 'user') | list | length == 0 -%}
{{ raise_exception('No user query in messages.') }}{%- endif -%}
{%- if tools -%}<|im_start|>tools
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'system' and not loop.first -%}{{ raise_exception('System message must come first.') }}
{%- endif -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content is defined %}<think>{{ message.reasoning_content }}</think>{% endif -%}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
{%- for key, value in call.function.arguments.items() %}[{{ key }}={{ value }}]{% endfor -%}
{%- endfor -%}<|im_end|>
{% endfor -%}
{%- if effort != 'medium' -%}<|im_start|>effort {{ effort }}<|im_end|>
{% endif -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif -%}
"""


def byte_letters() -> list[str]:
    """The 256 letters of byte-level vocabularies, in the order of the bytes that they stand for."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in visible]
    return [chr(0x100 + rest.index(byte)) if byte in rest else chr(byte) for byte in range(256)]


def fast_tokenizer(pieces: list[str], decoder: object, specials: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoder
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    tokenizer.add_special_tokens([AddedToken(special, special=True, normalized=False) for special in specials])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=specials[-1] if specials else None)


@pytest.fixture(scope="session")
def byte_level() -> PreTrainedTokenizerFast:
    letters = byte_letters()
    texts = ("ab", " the", "\n\n", "漢字", "é", "👩", "🇯🇵")
    spelled = ["".join(letters[byte] for byte in text.encode()) for text in texts]
    halves = ["".join(letters[byte] for byte in part) for part in (b"\xe6\xbc", b"\xa2\xe5\xad", b"\xff\xe2", b"\x80a")]
    tokenizer = fast_tokenizer([*letters, *spelled, *halves], decoders.ByteLevel(), SPECIALS)
    begin = ("<|endoftext|>", tokenizer.convert_tokens_to_ids("<|endoftext|>"))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[begin]
    )
    return tokenizer


@pytest.fixture(scope="session")
def make_wrapper(byte_level: PreTrainedTokenizerFast) -> Callable[..., TokenizerWrapper]:
    """A wrapper as mlx-lm loads it, with Qwen's tool parser; `template` None leaves it without chat template."""

    def make(template: str | None = TEMPLATE) -> TokenizerWrapper:
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level.backend_tokenizer, eos_token="<|im_end|>")
        tokenizer.chat_template = template
        return TokenizerWrapper(
            tokenizer,
            tool_call_start=qwen3_coder.tool_call_start,
            tool_call_end=qwen3_coder.tool_call_end,
            tool_parser=qwen3_coder.parse_tool_call,
        )

    return make


@pytest.fixture(scope="session")
def wrapper(make_wrapper: Callable[..., TokenizerWrapper]) -> TokenizerWrapper:
    return make_wrapper()


SPACED = ["▁", "▁the", "the", "▁a", "b", "s", "▁▁", "漢", "é", ".", "▁.", "\n", "\ufffd"]
BYTE_FALLBACK = [f"<0x{byte:02X}>" for byte in range(256)]


@pytest.fixture(
    scope="session", params=["sentencepiece", "metaspace", "wordpiece", "suffix", "byte level in a sequence", "none"]
)
def other_tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    """Tokenizers that are not plain byte-level."""
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    kinds = {
        "sentencepiece": ([*BYTE_FALLBACK, "", *SPACED], decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])),
        "metaspace": (SPACED, decoders.Metaspace()),
        "wordpiece": (["the", "##m", "a", "##ing", ".", ",", "'", "s", "漢", "##字", "n't"], decoders.WordPiece()),
        "suffix": (["the</w>", "a", "b</w>", ".</w>", "漢", "é</w>"], decoders.BPEDecoder()),
        "byte level in a sequence": (byte_letters(), decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])),
        "none": (["the", "a", "漢"], None),
    }
    pieces, decoder = kinds[request.param]
    return fast_tokenizer(pieces, decoder)
