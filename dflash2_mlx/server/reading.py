"""What one request is read with, and the names of what nobody reads in it. Knows no dialect."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict

from dflash2_mlx.server.model import ServedModel
from dflash2_mlx.server.settings import ServeSettings

if TYPE_CHECKING:
    from dflash2_mlx.server.openai.remembered import Remembered

_LONGEST_HEADER = 1000


class RequestObject(BaseModel):
    """An object of a request: null means the default, wrong types are refused, further fields are kept to be named."""

    model_config = ConfigDict(extra="allow", strict=True)


Given = Mapping[str, object] | RequestObject


@dataclass(frozen=True, slots=True)
class Reading:
    """One request on its way in.

    remembered, owner: earlier responses, and whose they are. path_id: the id in the request's path. ignored: where the
    fields stand that change nothing here.
    """

    model: ServedModel
    settings: ServeSettings
    remembered: "Remembered"
    owner: str
    path_id: str = ""
    ignored: list[str] = field(default_factory=list)

    def ignore(self, place: str) -> None:
        """Name a field that nobody reads; the numbers of messages and parts are left out."""
        place = re.sub(r"(messages|content|output|input|tool_calls|system)\[\d+\]", r"\1[]", place)
        if place not in self.ignored:
            self.ignored.append(place)

    def ignore_unread(self, part: Given, place: str, known: Collection[str] = ()) -> None:
        """Name every field of `part` beside the `known` ones, those of a checked body with all that it holds.

        None, and what is empty, ask for nothing.
        """
        given = (part.model_extra or {}) if isinstance(part, RequestObject) else part
        for name, value in given.items():
            if name not in known and value not in (None, [], {}):
                self.ignore(f"{place}{name}")
        if isinstance(part, RequestObject):
            for name in type(part).model_fields:
                inside = getattr(part, name)
                if isinstance(inside, RequestObject):
                    self.ignore_unread(inside, f"{place}{name}.")

    @property
    def header(self) -> dict[str, str]:
        """The header that lists what is ignored, safe whatever a client called its fields; none for nothing."""
        shown = ", ".join(quote(name[:100], safe="._[]-$") for name in self.ignored[:100])
        return {"X-DFlash2-Ignored-Params": shown[:_LONGEST_HEADER]} if shown else {}
