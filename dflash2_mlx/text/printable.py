"""What may reach a terminal: text without control characters. Pure."""

_REPLACED = (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))  # the last: of direction
_CONTROLS = {code: "\ufffd" for code in _REPLACED if code not in (9, 10)} | {13: None}


def printable(text: str) -> str:
    """`text` without control characters: no model, file, name or client may steer the terminal."""
    return text.translate(_CONTROLS)
