"""Free-form demo texts (stories, letters, diaries, travel notes) drawn from small grammars."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]

CORPUS = Path(__file__).parent / "corpus"
KINDS = ("story", "letter", "diary", "travel")
THINKING_SHARE = 0.35
NAMED_LETTER_SHARE = 0.5
EFFORTS: tuple[str | None, ...] = (None, None, None, "low", "medium", "xhigh")
_SLOT = re.compile(r"\{(a_)?([a-z]+\d?)\}")


def _words(text: str) -> tuple[str, ...]:
    """Return the items of a list written with slashes and line breaks."""
    return tuple(item.strip() for item in re.split(r"[/\n]", text) if item.strip())


SUBJECTS = _words("""
fox/lighthouse keeper/baker/cat/robot/clockmaker/sailor/gardener/bear/owl/dragon/fisherman
shepherd/hedgehog/postman/beekeeper/painter/rabbit/miller/ghost/piano teacher/crow/horse/astronaut
""")

LISTS: dict[str, tuple[str, ...]] = {
    "name": _words("""
        Marta/Johannes/Yusuf/Ingrid/Tomasz/Leila/Bartholomew/Sunniva/Rosalind/Kwame/Henrik/Anneliese
        Dmitri/Paloma/Eleanor/Matteo/Saskia/Gustav/Noor/Wilhelmina/Rafael/Katarina/Osman/Beatrix
        Florian/Amina/Cornelius/Petra/Hamish/Svetlana/Lorenzo/Giselle/Mikkel/Farida/Theodora/Casper
        Ludmila/Emeka/Philippa/Anton/Zainab/Roland/Marguerite/Stefan/Oriana/Viktor/Delphine/Jasper
    """),
    "town": _words("""
        Veldam/Port Sorrel/Kestrel Bay/Old Marren/Tolvik/Santa Lumina/Grauburg/Orsova/Little Pemble
        Hallowby/Montefiro/Dunmarrow/Silverend/Karasu/Brindle Cross/Quillmouth/Ravenna Vale/Eskilby
        Upper Tarn/Bellacqua/Nordhaven/Thornwick/Zelenka/Rosemouth
    """),
    "place": _words("""
        harbour/old mill/snowy pass/empty market/pine forest/stone bridge/railway station/frozen lake
        rose garden/village square/narrow valley/long beach/bell tower/apple orchard/quiet library
        windy hill/river bank/broken castle
    """),
    "object": _words("""
        copper lantern/woollen scarf/cracked mirror/silver key/wooden flute/paper map/brass compass
        velvet hat/glass marble/tin whistle/leather notebook/pocket watch/golden feather/clay jug
        striped umbrella/music box/rusty bell/small telescope/painted egg/blue ribbon/walking stick
        bronze coin/linen kite/porcelain cup
    """),
    "weather": _words("rainy/windy/foggy/snowy/sunny/stormy/cloudy/freezing/hot/misty"),
    "food": _words("""
        warm bread/onion soup/plum cake/fried fish/pumpkin pie/roasted chestnuts/honey biscuits
        mushroom stew/lemon tea/potato dumplings/cherry jam/goat cheese
    """),
    "time": _words("""
        one autumn evening/early one morning/on the first day of spring/late one night/last winter
        just before midnight/on market day/in the middle of summer
    """),
    "felt": _words("""
        tired but happy/proud/a little sad/very calm/full of hope/rather hungry/strangely brave
        warm again/wide awake/lonely
    """),
    "found": _words("found/bought/borrowed/dug up/repaired/was given/nearly lost/carried home"),
    "person": _words("""
        neighbour/grandmother/ferryman/schoolteacher/cousin/blacksmith/doctor/librarian
        night watchman/carpenter
    """),
    "ending": _words("""
        From that day on, {name} never travelled without the {object}.
        {friend} laughed, and they ate {food} until it was dark.
        In the end {name} gave the {object} to {friend}.
        And so the {object} still hangs above the door of {friend}.
        Nobody in {town} ever learnt what {name} had seen.
        After that, {name} and {friend} met there every {day}.
        But when {name} woke, the {object} was gone.
    """),
    "closing": _words("With love,/Yours truly,/See you soon,/Warm wishes,/Your old friend,/Until {day},"),
    "day": _words("Monday/Tuesday/Wednesday/Thursday/Friday/Saturday/Sunday"),
    "travelend": _words("""
        Bring good shoes and {a_object2}.
        I would go back for the {food} alone.
        Ask for {name} at the inn, and do not forget the {place}.
        The last boat leaves on {day}, so do not be late.
        Nobody should leave {town} without {a_object2}.
        {name} says that {town} is even better when it is {weather}.
    """),
    "diaryend": _words("""
        I went to bed {felt}.
        Tomorrow I will take the {object} back to {name}.
        I must not forget to thank {name}.
        Perhaps {name} will come again on {day}.
        I ate {food} and fell asleep with the {object} beside me.
        I hope that {name} never finds out.
    """),
}


def _texts(kind: str) -> tuple[str, ...]:
    """Return the templates of a kind from its file in the corpus folder, one a line."""
    lines = (CORPUS / f"text_{kind}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line.replace("\\n", "\n") for line in lines if line)


TEXTS = {kind: _texts(kind) for kind in KINDS}

_ALIAS = {"friend": "name", "from": "name", "to": "name", "other": "name"}

ASKS: dict[str, tuple[str, ...]] = {
    "story": (
        "Tell me a story about {a_subject}",
        "Write a short story about {a_subject}",
        "A short story about {a_subject}, please",
        "I would like a story with {a_subject} in it",
        "Can you tell me a tale about {a_subject}?",
        "Please write a little story about {a_subject}.",
        "story about {a_subject}",
        "Make up a story about {a_subject}",
        "Invent a short tale in which {a_subject} plays a part",
        "Give me a bedtime story about {a_subject}",
        "Once upon a time there was {a_subject}. Tell me the story.",
        "a short story please",
        "Tell me a story",
    ),
    "letter": (
        "Write a short letter from {from} to {to}",
        "A letter from {from} to {to}, please",
        "Please write a letter to {to} from {from}.",
        "Can you write {to} a short letter from {from}?",
        "letter from {from} to {to}",
        "{from} wants to write to {to}. Write the letter.",
        "Invent a letter that {from} sends to {to}",
        "Write a letter to a friend",
        "Write me a short letter",
        "a letter please",
        "Can you write a letter?",
        "Give me a little letter between two friends",
        "Make up a letter to an old friend",
    ),
    "diary": (
        "Write a diary entry",
        "A diary entry, please",
        "Write a short diary entry for {day}",
        "diary entry for {day}",
        "What would you write in a diary on {day}?",
        "Write a page of a diary about {a_weather} day",
        "Please write a diary entry about {a_weather} day.",
        "Give me a short diary page",
        "Invent a day and write it in a diary",
        "Can you write a diary entry about {a_weather} {day}?",
        "Dear diary, it was {a_weather} {day}. Go on.",
        "Make up a diary entry for {day}",
    ),
    "travel": (
        "Write a travel note about {town}",
        "A travel note, please",
        "Tell me about a trip to {town}",
        "Write a short travel note",
        "travel note for {town}",
        "What should I see in {town}?",
        "Please write a few lines for travellers to {town}.",
        "Can you write a travel tip for {town}?",
        "Invent a short trip and describe it",
        "Give me a travel note about {town}",
        "Make up a travel report from {town}",
        "I am travelling to {town}. What should I do there?",
        "I would like to read a travel note",
    ),
}

HELD_ASKS: dict[str, tuple[str, ...]] = {
    "story": (
        "Can you write a short story about {a_subject}?",
        "Please tell me a little tale about {a_subject}.",
        "I would like a bedtime story with {a_subject} in it",
        "Invent a story about {a_subject}, please",
        "Give me a short tale about {a_subject}",
    ),
    "letter": (
        "Can you write a letter from {from} to {to}?",
        "Please invent a short letter from {from} to {to}.",
        "Give me a letter that {from} sends to {to}",
        "I would like a short letter from {from} to {to}",
        "{from} would like to send {to} a letter. Write it, please.",
    ),
    "diary": (
        "Can you write a short diary entry for {day}?",
        "Please make up a diary page for {day}.",
        "Give me a diary entry about {a_weather} day",
        "I would like a diary entry for {day}",
        "Invent a short diary entry about {a_weather} {day}",
    ),
    "travel": (
        "Can you write a short travel note about {town}?",
        "Please give me a travel tip for {town}.",
        "Invent a trip to {town} and describe it",
        "I would like a travel note for {town}",
        "Make up a few lines about a trip to {town}",
    ),
    "news": (
        "Write a short news story about {a_subject}",
        "Tell me a news story about {a_subject}",
        "A short news item about {a_subject}, please",
        "Make up a local news story about {a_subject}",
        "Can you write a little news story with {a_subject} in it?",
    ),
}

THOUGHTS = {
    "story": "They want a short story.",
    "letter": "They want a short letter.",
    "diary": "They want a diary entry.",
    "travel": "They want a short travel note.",
}


def _article(phrase: str) -> str:
    """Return the phrase with its indefinite article."""
    return f"{'an' if phrase[0].lower() in 'aeiou' else 'a'} {phrase}"


def _pick(slot: str, chosen: dict[str, str], rng: random.Random) -> str:
    """Return the slot's value, drawn once and different from the other values of its list."""
    if slot not in chosen:
        base = _ALIAS.get(slot, slot.rstrip("0123456789"))
        values = SUBJECTS if base == "subject" else LISTS[base]
        value = rng.choice(values)
        while value in chosen.values():
            value = rng.choice(values)
        chosen[slot] = value
    return chosen[slot]


def fill(template: str, chosen: dict[str, str], rng: random.Random) -> str:
    """Return the template with every slot filled; `chosen` keeps the values for later mentions."""

    def value(match: re.Match[str]) -> str:
        text = _pick(match[2], chosen, rng)
        if "{" in text:
            text = fill(text, chosen, rng)
        return _article(text) if match[1] else text

    text = _SLOT.sub(value, template)
    return re.sub(r"(^|[.!?] )([a-z])", lambda m: m[1] + m[2].upper(), text)


def _ask(kind: str, template: str, rng: random.Random) -> tuple[str, dict[str, str]]:
    """Return the user's words and the values which they have fixed."""
    chosen: dict[str, str] = {}
    words = _SLOT.sub(
        lambda m: _article(_pick(m[2], chosen, rng)) if m[1] else _pick(m[2], chosen, rng),
        template,
    )
    return words, chosen


def _vary(words: str, rng: random.Random) -> str:
    """Return the words with a small change of case or punctuation now and then."""
    roll = rng.random()
    if roll < 0.15 and words[-1].isalpha():
        return words + "."
    if roll < 0.25 and words[-1] == ".":
        return words[:-1]
    if roll < 0.35 and words.split()[0] not in ("I", *LISTS["name"]):
        return words[0].lower() + words[1:]
    return words


def _train_record(kind: str, rng: random.Random) -> Record:
    """Return one training conversation of the kind."""
    asks = ASKS[kind]
    if kind == "letter" and rng.random() < NAMED_LETTER_SHARE:
        asks = tuple(ask for ask in asks if "{" in ask)
    words, chosen = _ask(kind, rng.choice(asks), rng)
    answer = fill(rng.choice(TEXTS[kind]), chosen, rng)
    thinking = rng.random() < THINKING_SHARE
    reply: Record = {"role": "assistant", "content": answer}
    if thinking:
        reply["reasoning_content"] = THOUGHTS[kind]
    return {
        "kind": kind,
        "messages": [{"role": "user", "content": _vary(words, rng)}, reply],
        "enable_thinking": thinking,
        "reasoning_effort": rng.choice(EFFORTS) if thinking else None,
        "tools": None,
    }


def _held_out_record(kind: str, words: str) -> Record:
    """Return one held-out prompt; its answer is free."""
    return {
        "kind": kind,
        "messages": [{"role": "user", "content": words}],
        "enable_thinking": False,
        "reasoning_effort": None,
        "tools": None,
        "expect": "",
    }


def records(rng: random.Random, split: str) -> Iterator[Record]:
    """Yield endless "train" records, or ten "held_out" prompts of each kind with news."""
    if split == "train":
        while True:
            yield _train_record(rng.choice(KINDS), rng)
    if split not in ("held_out", "other"):
        raise ValueError(f"split must be 'train', 'held_out' or 'other', not {split!r}")
    if split == "other":
        return
    for kind, templates in HELD_ASKS.items():
        seen: set[str] = set()
        while len(seen) < 10:
            words, _ = _ask(kind, templates[len(seen) % len(templates)], rng)
            if words not in seen:
                seen.add(words)
                yield _held_out_record(kind, words)
