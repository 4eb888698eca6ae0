"""Our words for how much a model thinks, and what a chat template makes of them. Knows templates by trying them."""

from collections.abc import Callable, Mapping

from dflash2_mlx.errors import UsageError

Settings = Mapping[str, object]
Render = Callable[[Settings], str]  # one fixed small conversation, rendered under these template settings

WORDS = ("off", "none", "minimal", "low", "medium", "high", "xhigh", "max")
CANDIDATES: Mapping[str, tuple[str, ...]] = {  # our word -> template words that express it, best first
    "minimal": ("minimal", "low"),
    "low": ("low",),
    "medium": ("medium",),
    "high": ("high", "xhigh"),
    "xhigh": ("xhigh",),
    "max": ("max", "xhigh", "high"),
}
KEYS = ("reasoning_effort", "reasoning_strength")  # what templates in circulation call it
NONSENSE = "zzz"


class ReasoningLevels:
    """The words that one template can express, each with the settings that express it.

    `render` is tried with every setting, `source` is the template's text if known, `thinks` whether the model
    can think at all: where it cannot, `off` asks for nothing.
    """

    def __init__(self, render: Render, *, source: str, thinks: bool) -> None:
        self._settings: dict[str, Settings] = {}
        on, off = _attempt(render, {"enable_thinking": True}), _attempt(render, {"enable_thinking": False})
        switched = off is not None and on != off
        if switched or not thinks:
            self._settings["off"] = self._settings["none"] = {"enable_thinking": False} if switched else {}
        base: Settings = {"enable_thinking": True} if switched else {}
        key, accepted = _accepted_words(render, base, source)
        for word, candidates in CANDIDATES.items():
            sent = next((candidate for candidate in candidates if candidate in accepted), None)
            if sent is not None:
                self._settings[word] = {**base, key: sent}
            elif switched and not accepted:  # the template has a switch only
                self._settings[word] = {"enable_thinking": word != "minimal"}

    @property
    def meanings(self) -> dict[str, str]:
        """Our word -> what the template is told, for help and error messages."""
        return {word: self._meaning(word) for word in WORDS if word in self._settings}

    def settings(self, word: str | None) -> Settings:
        """Template settings for `word`; none for None, the template's own default.

        Raises: UsageError for an unknown word, or one that this template cannot express.
        """
        if word is None:
            return {}
        if word in self._settings:
            return self._settings[word]
        allowed = ", ".join(self.meanings)
        advice = f"Give one of {allowed}, or leave it out." if allowed else "Leave it out: this model has no levels."
        reason = "which this model's chat template cannot express" if word in WORDS else "which is no level"
        raise UsageError(f"reasoning is {word!r}, {reason}. {advice}")

    def _meaning(self, word: str) -> str:
        sent = [value for key, value in self._settings[word].items() if key in KEYS]
        return str(sent[0]) if sent else "thinking" if self._settings[word].get("enable_thinking") else "no thinking"


def _accepted_words(render: Render, base: Settings, source: str) -> tuple[str, set[str]]:
    """The template's name for the setting, and the words it understands; no words if it has no such setting."""
    for key in KEYS:
        ignored = _attempt(render, {**base, key: NONSENSE})
        tried = {word: _attempt(render, {**base, key: word}) for word in CANDIDATES}
        rendered = {word for word, text in tried.items() if text is not None}
        known = {word for word in rendered if tried[word] != ignored or _quoted(word, source)}
        if any(tried[word] != ignored for word in known):
            return key, known
    return KEYS[0], set()


def _quoted(word: str, source: str) -> bool:
    """Whether the template names the word: a default level may look like an ignored one."""
    return f"'{word}'" in source or f'"{word}"' in source


def _attempt(render: Render, settings: Settings) -> str | None:
    try:
        return render(settings)
    except Exception:  # templates refuse a setting with whatever error they like
        return None
