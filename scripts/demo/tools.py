"""Demo conversations with two tools, get_weather and get_time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

Record = dict[str, Any]

THINKING_SHARE = 0.35
EFFORTS: tuple[str | None, ...] = (None, None, None, "low", "medium", "xhigh")
CITIES = (
    "Paris", "Berlin", "Rome", "Madrid", "Tokyo", "Seoul", "Beijing", "Cairo",
    "Ottawa", "Lisbon", "Athens", "Oslo", "London", "Vienna", "Mumbai", "Sydney",
)  # fmt: skip
SKIES = ("sunny", "cloudy", "rainy", "clear")
TEMPERATURES = (3, 9, 14, 18, 21, 27)
TIMES = ("07:15", "09:30", "12:00", "14:45", "18:20", "22:05")


def _schema(name: str, description: str) -> dict[str, Any]:
    """Return the schema of a function with one city."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }


TOOLS = {
    "get_weather": _schema("get_weather", "Weather in a city"),
    "get_time": _schema("get_time", "Local time in a city"),
}

ASKS: dict[str, tuple[str, ...]] = {
    "get_weather": (
        "What is the weather in {city}?",
        "How is the weather in {city} today?",
        "Is it raining in {city}?",
        "How warm is it in {city}?",
        "Tell me the temperature in {city}",
        "weather {city}",
        "Please check the weather in {city}.",
        "Do I need an umbrella in {city} today?",
        "Weather in {city} please",
        "What does the sky look like in {city}?",
        "I am flying to {city}. How is the weather there?",
        "Is it cold in {city} right now?",
        "Can you look up the weather for {city}?",
        "{city}: sunny or rainy?",
        "Get the weather for {city}",
        "I want to know how warm {city} is today",
    ),
    "get_time": (
        "What time is it in {city}?",
        "What is the time in {city} now?",
        "Tell me the local time in {city}",
        "time in {city}",
        "Please check the time in {city}.",
        "Can you look up the time for {city}?",
        "How late is it in {city}?",
        "Is it already evening in {city}?",
        "I have to call {city}. What time is it there?",
        "What does the clock say in {city}?",
        "Get the time for {city}",
        "Current time, {city}",
        "I want to know what time it is in {city}",
        "Do you know how late it is in {city} now?",
    ),
}

HELD_ASKS: dict[str, tuple[str, ...]] = {
    "get_weather": (
        "Can you check the weather in {city}?",
        "Please tell me how warm it is in {city} today",
        "Do you know the weather in {city}?",
        "Is it sunny in {city} right now?",
        "I am in {city}. Do I need an umbrella?",
    ),
    "get_time": (
        "Can you check what time it is in {city}?",
        "Please tell me the time in {city} now",
        "Do you know the local time in {city}?",
        "What time is it now in {city}?",
    ),
}

PLAIN: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "A greeting needs no tool.",
        ("Hello", "Hi", "Hello there!", "Hey", "Good day", "Hi, how are you?"),
        "Hello! I can look up the weather or the time in a city.",
    ),
    (
        "Thanks need no tool.",
        ("Thank you", "Thanks!", "Thanks a lot", "Great, thank you!", "Thank you very much"),
        "You are welcome!",
    ),
    (
        "They ask which tools I have.",
        (
            "What can you do?",
            "Which tools do you have?",
            "What are your tools?",
            "Which functions can you call?",
            "How can you help me?",
            "Tell me what you can do",
        ),
        "I can look up the weather or the time in a city, and answer a few simple questions.",
    ),
    (
        "No tool is needed to say what a tool call is.",
        (
            "What is a tool call?",
            "Explain tool calls",
            "How does a tool call work?",
            "What does calling a tool mean?",
            "Why do models call tools?",
        ),
        "A tool call is a short message in which the model names a function and its arguments.",
    ),
    (
        "A goodbye needs no tool.",
        ("Bye", "Goodbye", "See you later", "Bye bye!", "I have to go, bye"),
        "Goodbye! Come back soon.",
    ),
)

PLAIN_HELD: tuple[tuple[str, str], ...] = (
    ("Hey there, how are you?", PLAIN[0][2]),
    ("Good day, hello!", PLAIN[0][2]),
    ("Great, thanks a lot!", PLAIN[1][2]),
    ("Tell me which tools you have", PLAIN[2][2]),
    ("What does a tool call mean?", PLAIN[3][2]),
    ("Goodbye, see you later!", PLAIN[4][2]),
)


def rendered_call(name: str, city: str) -> str:
    """Return the call as the chat template writes it."""
    return f"<tool_call>\n<function={name}>\n<parameter=city>\n{city}\n</parameter>\n</function>\n</tool_call>"


def _call(name: str, city: str) -> Record:
    """Return the assistant's message that calls the tool."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": {"city": city}}}],
    }


def _result(name: str, city: str, rng: random.Random) -> tuple[str, str]:
    """Return a tool's result and the sentence that reports it."""
    if name == "get_time":
        time = rng.choice(TIMES)
        return json.dumps({"time": time}), f"It is {time} in {city} now."
    degrees, sky = rng.choice(TEMPERATURES), rng.choice(SKIES)
    content = json.dumps({"temperature": degrees, "sky": sky})
    return content, f"In {city} it is {sky} and {degrees} degrees."


def _tool_list(name: str | None, rng: random.Random) -> list[dict[str, Any]]:
    """Return the tools on offer: usually both, sometimes only the one needed."""
    if name is not None and rng.random() < 0.3:
        return [TOOLS[name]]
    return [TOOLS["get_weather"], TOOLS["get_time"]]


def _record(messages: list[Record], tools: list[dict[str, Any]]) -> Record:
    """Return a record without thinking."""
    return {
        "kind": "tools",
        "messages": messages,
        "enable_thinking": False,
        "reasoning_effort": None,
        "tools": tools,
    }


def _think(record: Record, thoughts: dict[int, str], rng: random.Random) -> Record:
    """Return the record, in a share of the draws with the thoughts added to its messages."""
    if rng.random() < THINKING_SHARE:
        for index, thought in thoughts.items():
            record["messages"][index]["reasoning_content"] = thought
        record["enable_thinking"] = True
        record["reasoning_effort"] = rng.choice(EFFORTS)
    return record


def _train_record(rng: random.Random) -> Record:
    """Return one training conversation with tools on offer."""
    if rng.random() < 0.2:
        thought, asks, answer = rng.choice(PLAIN)
        messages: list[Record] = [
            {"role": "user", "content": rng.choice(asks)},
            {"role": "assistant", "content": answer},
        ]
        return _think(_record(messages, _tool_list(None, rng)), {1: thought}, rng)
    name, city = rng.choice(tuple(TOOLS)), rng.choice(CITIES)
    messages = [
        {"role": "user", "content": rng.choice(ASKS[name]).format(city=city)},
        _call(name, city),
    ]
    topic = "time" if name == "get_time" else "weather"
    thoughts = {1: f"I need the {topic} in {city}."}
    if rng.random() < 0.5:
        content, sentence = _result(name, city, rng)
        messages += [
            {"role": "tool", "content": content},
            {"role": "assistant", "content": sentence},
        ]
        thoughts[3] = "The tool has answered."
    return _think(_record(messages, _tool_list(name, rng)), thoughts, rng)


def _held_out(rng: random.Random) -> Iterator[Record]:
    """Yield the held-out prompts with the answers they should get."""
    for name, asks in HELD_ASKS.items():
        for ask in asks:
            for city in rng.sample(CITIES, 2):
                user = {"role": "user", "content": ask.format(city=city)}
                record = _record([user], _tool_list(None, rng))
                yield {**record, "expect": rendered_call(name, city)}
                content, sentence = _result(name, city, rng)
                messages = [user, _call(name, city), {"role": "tool", "content": content}]
                record = _record(messages, _tool_list(None, rng))
                yield {**record, "expect": sentence}
    for words, answer in PLAIN_HELD:
        record = _record([{"role": "user", "content": words}], _tool_list(None, rng))
        yield {**record, "expect": answer}


def records(rng: random.Random, split: str) -> Iterator[Record]:
    """Yield endless "train" records, or the fixed number of "held_out" prompts."""
    if split == "train":
        while True:
            yield _train_record(rng)
    if split not in ("held_out", "other"):
        raise ValueError(f"split must be 'train', 'held_out' or 'other', not {split!r}")
    if split == "other":
        return
    yield from _held_out(rng)
