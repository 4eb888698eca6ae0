"""JSON from outside, read so that nothing in it can get past a `ValueError`. Knows nothing of the package."""

import json
from typing import Any


def parse_json(text: str | bytes, *, strict: bool = True) -> Any:
    """The value that `text` holds. Raises: ValueError where it is no JSON, or is nested deeper than can be read.

    strict: False takes line ends within strings.
    """
    try:
        return json.loads(text, strict=strict)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
