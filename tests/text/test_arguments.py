"""Arguments are what their schema says, exactly, and text where they do not fit it."""

import pytest

from dflash2_mlx.text.arguments import argument

COLOURS = {"enum": ["red", "1", 2, None]}
ROOT = {
    "$defs": {"Count": {"type": "integer"}, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}] * 3}},
    "additionalProperties": {"type": "integer"},
}


def one_of(*types):
    return {"anyOf": [{"type": kind} for kind in types]}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "1029384756102938475", 1029384756102938475),
        ({"type": "integer"}, "-" + "9" * 60, -int("9" * 60)),
        ({"type": "integer"}, "5.0", 5),
        ({"type": "integer"}, " 5 ", 5),
        ({"type": "number"}, "5", 5),
        ({"type": "number"}, "0.1", 0.1),
        ({"type": "number"}, "1e-7", 1e-7),
        (one_of("integer", "null"), "5", 5),
        (one_of("null", "integer"), "null", None),
        (one_of("integer", "null"), "None", None),
        ({"type": "integer", "nullable": True}, "null", None),
        ({"type": ["string", "null"]}, "90210", "90210"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": "string"}, "null", "null"),
        ({"type": "string"}, "007", "007"),
        ({"type": "string"}, '{"a": 1}', '{"a": 1}'),
        ({"type": "string"}, "", ""),
        (one_of("integer", "string"), "5", 5),
        (one_of("string", "integer"), "5", "5"),
        (one_of("integer", "string"), "five", "five"),
        ({"oneOf": [{"type": "string"}, {"type": "array"}]}, '["a"]', ["a"]),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "boolean"}, "1", True),
        ({"type": "boolean"}, "yes", True),
        ({"type": "boolean"}, "no", False),
        (one_of("boolean", "integer"), "1", 1),
        ({"type": "object"}, '{"a": [1, "2"]}', {"a": [1, "2"]}),
        ({"type": "object"}, '{"a": "b\nc"}', {"a": "b\nc"}),
        ({"type": "object"}, "{'a': None}", {"a": None}),
        ({"type": "array"}, "[]", []),
        ({"properties": {}}, "{}", {}),
        ({"items": {}}, "[1]", [1]),
        (COLOURS, "red", "red"),
        (COLOURS, "1", "1"),
        (COLOURS, "2", 2),
        (COLOURS, "null", None),
        ({"const": 3}, "3", 3),
        ({"$ref": "#/$defs/Count"}, "5", 5),
        ({"allOf": [{"$ref": "#/$defs/Count"}, {"description": "n"}]}, "5", 5),
        ({"$ref": "https://example.com"}, "5", "5"),
        ({"$ref": "#/$defs/Loop"}, "5", "5"),
        ({"type": "int32"}, "5", 5),
        ({"type": "dict"}, "{}", {}),
        ({"type": 7}, "5", "5"),
        ({}, "5", "5"),
        ({}, '{"a": 1}', {"a": 1}),
        (True, "5", "5"),
        (None, "5", 5),
    ],
)
def test_an_argument_has_the_type_of_its_schema(schema, text, value):
    (read,) = argument(text, "x", {**ROOT, "properties": {"x": schema}})
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, "1e400"),
        ({"type": "integer"}, "9" * 5000),
        ({"type": "integer"}, "true"),
        ({"type": "number"}, "NaN"),
        ({"type": "boolean"}, "maybe"),
        ({"type": "boolean"}, "2"),
        ({"type": "object"}, "[1]"),
        ({"type": "object"}, '{"a": NaN}'),
        ({"type": "object"}, "{1: {2}}"),
        ({"type": "array"}, "[" * 100_000),
        ({"type": "array"}, "a, b"),
        ({"type": "null"}, "5"),
        (COLOURS, "blue"),
        ({"const": True}, "1"),
    ],
)
def test_what_does_not_fit_stays_the_text_it_is(schema, text):
    assert argument(text, "x", {"properties": {"x": schema}}) == (text,)


@pytest.mark.parametrize("kind", ["integer", "number", "boolean", "object", "array", "null"])
def test_an_empty_argument_that_may_not_be_empty_is_left_out(kind):
    assert argument(" ", "x", {"properties": {"x": {"type": kind}}}) == ()


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": {"y": {}}}])
def test_an_argument_that_no_schema_describes_is_text(schema):
    assert argument("5", "x", schema) == ("5",)
