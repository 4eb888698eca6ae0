"""Log probabilities in OpenAI's two shapes. Knows tokens as bytes, nothing of probabilities."""

from collections.abc import Callable, Sequence

from dflash2_mlx.events import Round, TokenLogprob

TokenBytes = Callable[[int], bytes]
LOWEST = -9999.0  # what OpenAI writes for a token that cannot come


def chat_logprobs(entries: Sequence[TokenLogprob], token_bytes: TokenBytes) -> list[dict[str, object]]:
    """The entries of `logprobs.content`."""
    return [
        {**_named(entry.token, entry.logprob, token_bytes), "top_logprobs": _top(entry, token_bytes)}
        for entry in entries
    ]


def completion_logprobs(
    entries: Sequence[TokenLogprob], token_bytes: TokenBytes, offset: int
) -> tuple[dict[str, object], int]:
    """The `logprobs` of a text completion whose first token starts at `offset`, and where the next one starts."""
    tokens, offsets = [], []
    for entry in entries:
        tokens.append(_text(token_bytes(entry.token)))
        offsets.append(offset)
        offset += len(tokens[-1])
    shape: dict[str, object] = {
        "tokens": tokens,
        "token_logprobs": [_finite(entry.logprob) for entry in entries],
        "top_logprobs": [{_text(token_bytes(t)): _finite(p) for t, p in entry.top} for entry in entries],
        "text_offset": offsets,
    }
    return shape, offset


def shown(done: Round, end_tokens: frozenset[int]) -> list[TokenLogprob]:
    """The round's entries without those of end tokens, which are no text."""
    return [entry for entry in done.logprobs if entry.token not in end_tokens]


def _top(entry: TokenLogprob, token_bytes: TokenBytes) -> list[dict[str, object]]:
    return [_named(token, logprob, token_bytes) for token, logprob in entry.top]


def _named(token: int, logprob: float, token_bytes: TokenBytes) -> dict[str, object]:
    data = token_bytes(token)
    return {"token": _text(data), "logprob": _finite(logprob), "bytes": list(data)}


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)
