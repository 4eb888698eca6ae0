"""The text of one argument of a tool call to its value, by its JSON schema. Knows no tags and no tools."""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from dflash2_mlx.parsing import parse_json

_DEEPEST, _MOST = 16, 64  # references one behind the other, and types beside each other, in a schema
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_TYPES = {  # names in circulation that are none of JSON schema's
    **dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string"),
    **dict.fromkeys(("int", "long", "short", "uint", "unsigned"), "integer"),
    **dict.fromkeys(("float", "double", "num"), "number"),
    **dict.fromkeys(("dict", "map"), "object"),
    **dict.fromkeys(("list", "arr", "tuple"), "array"),
    **dict.fromkeys(("bool", "binary"), "boolean"),
}
Kind = str | tuple[object, ...]  # a type of JSON schema, `any`, or the values of an enum


def argument(text: str, key: str, schema: Mapping[str, object]) -> tuple[object, ...]:
    """The value of the argument `key` that `text` stands for; none where it is blank and may not be.

    schema: of all arguments together. What does not fit its part of it stays the text that it is, for the client to
    complain about. Whole numbers are exact. Where several types are allowed, null, objects and arrays come before
    the others, and these in the order in which the schema names them.
    """
    properties = schema.get("properties")
    part = properties.get(key) if isinstance(properties, Mapping) else None
    kinds = _kinds(schema.get("additionalProperties") if part is None else part, schema)
    blank_fits = any(kind in ("string", "any") or (isinstance(kind, tuple) and text in kind) for kind in kinds)
    return (_converted(text, kinds),) if text.strip() or blank_fits else ()


def _kinds(schema: object, root: Mapping[str, object]) -> list[Kind]:
    """What a value of `schema` may be, in the order in which text is read as it."""
    found = list(islice(_alternatives(schema, root), _MOST))
    first = [kind for kind in found if isinstance(kind, tuple) or kind in ("null", "object", "array")]
    return [*first, *(kind for kind in found if kind not in first)]


def _alternatives(schema: object, root: Mapping[str, object], depth: int = 0) -> Iterator[Kind]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        yield "any"
        return
    if schema.get("nullable") is True:
        yield "null"
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    parts = [part for key in ("anyOf", "oneOf", "allOf") for part in _listed(schema.get(key))]
    if isinstance(values, list):
        yield tuple(values)
    elif isinstance(schema.get("$ref"), str):
        yield from _alternatives(_referenced(str(schema["$ref"]), root), root, depth + 1)
    elif parts:
        for part in parts:
            yield from _alternatives(part, root, depth + 1)
    elif schema.get("type"):
        for kind in _listed(schema["type"]) or [schema["type"]]:
            yield _type(str(kind))
    else:
        yield "object" if "properties" in schema else "array" if "items" in schema else "any"


def _referenced(reference: str, root: Mapping[str, object]) -> object:
    """The part of `root` that `#/$defs/Name` points to; None for anything else."""
    found: object = root
    for key in reference.removeprefix("#/").split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _type(name: str) -> str:
    name = name.strip().lower()
    known = ("string", "integer", "number", "boolean", "object", "array", "null")
    return name if name in known else _TYPES.get(name.rstrip("0123456789"), "any")


def _converted(text: str, kinds: Sequence[Kind]) -> object:
    """`text` as the first of `kinds` that it is as JSON, else as one that it means; itself where it fits none."""
    value = _json(text)
    for kind in kinds:
        for candidate in (text, value):
            if _fits(candidate, kind):
                return candidate
    for kind in kinds:
        meant = _meant(text, value, kind)
        if meant is not None:
            return meant
    return None if text.strip() == "None" and "null" in kinds else text


def _json(text: str) -> object:
    """The value; `text` itself where it is no JSON, or no other JSON could be made of it again."""
    try:
        value: object = parse_json(text, strict=False)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value


def _fits(value: object, kind: Kind) -> bool:
    if isinstance(kind, tuple):
        return any(value == allowed and type(value) is type(allowed) for allowed in kind)
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "object": dict,
        "array": list,
        "any": (dict, list, type(None)),
        "null": type(None),
    }
    return isinstance(value, types[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _meant(text: str, value: object, kind: Kind) -> object:
    """What `text`, which is no JSON of this kind, stands for all the same; None where it stands for nothing."""
    if kind == "boolean":
        return _WORDS.get(text.strip().lower())
    if kind == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if kind in ("object", "array"):
        try:
            literal = ast.literal_eval(text.strip())  # models that know more Python than JSON
            json.dumps(literal, allow_nan=False)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return None
        return literal if _fits(literal, kind) else None
    return None
