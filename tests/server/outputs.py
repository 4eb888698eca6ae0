"""Fifty things a model may write, each after an opened think tag."""

CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\n{city}\n</parameter>\n"
    "<parameter=days>\n{days}\n</parameter>\n</function>\n</tool_call>"
)
ONE, TWO = CALL.format(city="Paris", days=3), CALL.format(city="東京 👩‍👩‍👧", days=10)

_ANSWERS = [
    "Plain text.",
    "",
    "Two\n\nparagraphs.\n",
    "漢字 and кириллица and žluťoučký kůň",
    "👩‍👩‍👧🇯🇵 flags and families 🏳️‍🌈",
    'Quotes " and \\ backslashes \\n and \t tabs',
    "<not a tag> </also not> <",
    "<tool_",
    "data: [DONE]\n\ndata: {}",
    "line\r\nbreaks\u2028of\u2029all kinds",
    ONE,
    "Let me look.\n\n" + ONE,
    ONE + "\n" + TWO,
    "First this.\n" + ONE + "\n" + TWO + "\n\nand some more text",
    "<tool_call>\nnot a call at all\n</tool_call>",
    "<tool_call>\n<function=unknown>\n</function>\n</tool_call>",
    "<tool_call>\n<function=weather>\n<parameter=city>\nParis",
    'before <tool_call>{"name": "weather"}</tool_call> after',
    "<think>again</think> in the answer",
    "code:\n```python\nprint('STOP')\n```\n",
    "STOP at once",
    "some text, then STOP and what nobody may see",
    "almost ST but no, then S T O P",
    "x" * 300,
    "a b " * 80,
]
_THOUGHTS = [
    "",
    "Thinking it over.\n",
]
OUTPUTS = [f"{thought}</think>\n\n{answer}" for answer in _ANSWERS for thought in _THOUGHTS]
OUTPUTS[1] = "thinking that never ends, 漢字"
OUTPUTS[3] = "a <tool_call> inside thinking </tool_call>\n</think>\n\nand an answer"
assert len(OUTPUTS) == 50
