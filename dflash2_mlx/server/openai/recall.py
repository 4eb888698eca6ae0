"""What is kept of OpenAI's responses and conversations, over HTTP: read, forgotten, begun. Generates nothing."""

import time
import uuid
from collections.abc import Sequence
from typing import cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.fields import typed
from dflash2_mlx.server.guards import owner_of
from dflash2_mlx.server.openai.bodies import ConversationBody
from dflash2_mlx.server.openai.remembered import Item, Remembered, with_id
from dflash2_mlx.server.reading import Reading


class Recall:
    """The endpoints of what is `remembered`. Every one answers 404 for what is not there, or is another owner's."""

    def __init__(self, remembered: Remembered) -> None:
        self._remembered = remembered

    async def document(self, request: Request) -> Response:
        """A response or a conversation; DELETE forgets it."""
        owner, identity = owner_of(request.headers), request.path_params["id"]
        if request.method != "DELETE":
            return JSONResponse(self._remembered.entry(owner, identity).document)
        kind = self._remembered.forget(owner, identity)["object"]
        return JSONResponse({"id": identity, "object": f"{kind}.deleted", "deleted": True})

    async def items(self, request: Request) -> Response:
        """What was said in a conversation, or up to a response, the latest first unless asked otherwise."""
        entry = self._remembered.entry(owner_of(request.headers), request.path_params["id"])
        own = len(cast(list[Item], entry.document.get("output", [])))
        items = list(entry.items[: len(entry.items) - own])
        return JSONResponse(listed(items if request.query_params.get("order") == "asc" else items[::-1]))


def begin_conversation(document: JsonObject, reading: Reading) -> JsonObject:
    """A new conversation. Raises: ApiError 400."""
    body = typed(ConversationBody, document)
    conversation = {
        "id": f"conv_{uuid.uuid4().hex}",
        "object": "conversation",
        "created_at": int(time.time()),
        "metadata": body.metadata or {},
    }
    reading.remembered.keep(reading.owner, conversation, None, list(map(with_id, body.items or [])))
    return conversation


def add_items(document: JsonObject, reading: Reading) -> JsonObject:
    """Further items of a conversation, as they were added. Raises: ApiError 400; 404 for no such conversation."""
    items = list(map(with_id, typed(ConversationBody, document).items or []))
    reading.remembered.extend(reading.owner, reading.path_id, items)
    return listed(items)


def listed(items: Sequence[Item]) -> JsonObject:
    """Items as OpenAI lists them, all on one page."""
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {"first_id": None, "last_id": None}
    return {"object": "list", "data": list(items), **ends, "has_more": False}
