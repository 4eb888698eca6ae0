"""Tools that Anthropic publishes and clients run: what a model that was not trained on them has to be told. Data only.

Source: Anthropic's documentation of its bash, text editor and memory tools, and its Python package's types.
"""

from collections.abc import Mapping

from dflash2_mlx.server.body import JsonObject

_TEXT: JsonObject = {"type": "string"}
_RANGE: JsonObject = {"type": "array", "items": {"type": "integer"}, "description": "view: first and last line"}


def _schema(properties: Mapping[str, object], *required: str) -> JsonObject:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _commands(words: str, properties: Mapping[str, object]) -> JsonObject:
    command = {"type": "string", "enum": words.split()}
    return _schema({"command": command, **properties}, "command", *([] if "rename" in words else ["path"]))


_EDITING: JsonObject = {
    "path": _TEXT,
    "view_range": _RANGE,
    "file_text": {**_TEXT, "description": "create: the whole file"},
    "old_str": {**_TEXT, "description": "str_replace: the text to replace, which occurs once"},
    "new_str": {**_TEXT, "description": "str_replace: what takes its place"},
    "insert_line": {"type": "integer", "description": "insert: the line to insert after, 0 = at the beginning"},
}
_INSERTING: JsonObject = {**_EDITING, "insert_text": {**_TEXT, "description": "insert: the text"}}
_INSERTING_NEW: JsonObject = {**_EDITING, "new_str": {**_TEXT, "description": "str_replace, insert: the new text"}}
_MOVING: JsonObject = {"old_path": _TEXT, "new_path": _TEXT}
_BASH = (
    "Run a command in a bash shell that stays open between calls.",
    _schema({"command": _TEXT, "restart": {"type": "boolean", "description": "true: begin with a fresh shell"}}),
)
_EDITOR = (
    "View, create and edit text files.",
    _commands("view create str_replace insert", _INSERTING),
)
_OLD_EDITOR = (_EDITOR[0], _commands("view create str_replace insert undo_edit", _INSERTING_NEW))
_MEMORY = (
    "Keep notes in files under /memories, and look them up.",
    _commands("view create str_replace insert delete rename", {**_INSERTING, **_MOVING}),
)

# the tool's type -> its description and the schema of its arguments
CLIENT_TOOLS: Mapping[str, tuple[str, JsonObject]] = {
    **dict.fromkeys(("bash_20241022", "bash_20250124"), _BASH),
    **dict.fromkeys(("text_editor_20241022", "text_editor_20250124"), _OLD_EDITOR),
    **dict.fromkeys(("text_editor_20250429", "text_editor_20250728"), _EDITOR),
    "memory_20250818": _MEMORY,
}


def why_not_offered(kind: str) -> str:
    """Why a tool of another type is refused, and what to do."""
    if kind.startswith("computer_"):
        return f"{kind[:40]!r} answers with pictures, and this model reads text only. Drop it."
    return f"{kind[:40]!r} runs on Anthropic's servers. Offer tools of your own."
