"""What the server says of itself: health, status, models. Reads their state, changes nothing."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dflash2_mlx import __version__
from dflash2_mlx.server.errors import ApiError
from dflash2_mlx.server.model import Kept, ServedModel
from dflash2_mlx.server.state import ServerState

_TROUBLE = {"failed": "engine_dead", "dead": "engine_dead", "stopped": "stopping", "loading": "loading"}


class Health:
    """The endpoints that only look."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def live(self, request: Request) -> Response:
        """200 as long as the event loop turns."""
        return JSONResponse({"status": "ok"})

    async def health(self, request: Request) -> Response:
        """200 where requests are answered; else 503 and why."""
        worker = self._state.worker
        word = "stalled" if worker.stalled else _TROUBLE.get(worker.state, "ok")
        document: dict[str, object] = {"status": word, "version": __version__}
        if worker.error is not None:
            document["reason"] = f"{type(worker.error).__name__}: {worker.error}"
        if word == "ok":
            document["model"] = self._state.model().name
            return JSONResponse(document)
        return JSONResponse(document, 503, {"Retry-After": "2"} if word == "loading" else None)

    async def status(self, request: Request) -> Response:
        """Counters since the start, in oMLX's names."""
        worker, totals = self._state.worker, self._state.totals
        return JSONResponse(
            {
                "status": worker.state,
                "version": __version__,
                "uptime_seconds": time.time() - totals.started,
                "total_requests": totals.requests,
                "failed_requests": totals.failed,
                "cancelled_requests": totals.cancelled,
                "active_requests": worker.active,
                "waiting_requests": worker.waiting,
                "open_requests": self._state.open,
                "max_queue": worker.max_queue,
                "total_prompt_tokens": totals.prompt_tokens,
                "total_completion_tokens": totals.completion_tokens,
                "total_cached_tokens": totals.cached_tokens,
                "cache_efficiency": _share(totals.cached_tokens, totals.prompt_tokens),
                "avg_prefill_tps": _share(totals.prompt_tokens - totals.cached_tokens, totals.prefill_s),
                "avg_generation_tps": _share(totals.completion_tokens, totals.decode_s),
                "draft_acceptance": _share(totals.accepted, totals.drafted),
                "rounds": totals.rounds,
                **_model(worker.opened.model if worker.opened else None),
                **_cache(worker.opened.kept if worker.opened else Kept()),
            }
        )

    async def models(self, request: Request) -> Response:
        """The list of models, OpenAI's and Anthropic's at once: the one."""
        model = self._state.model()
        ends = {"first_id": model.name, "last_id": model.name, "has_more": False}
        return JSONResponse({"object": "list", "data": [self._entry(model)], **ends})

    async def model(self, request: Request) -> Response:
        """One model by name; 404 for any other."""
        model, name = self._state.model(), request.path_params["name"]
        if name not in model.names:
            raise ApiError(404, "model_not_found", f"the model {name[:200]!r} is not served here.", "model")
        return JSONResponse(self._entry(model))

    async def models_status(self, request: Request) -> Response:
        """The models with what is loaded, in oMLX's form."""
        model = self._state.model()
        entry = {"id": model.name, "loaded": True, "pinned": True, "max_context_window": model.context}
        return JSONResponse({"models": [{**entry, **_model(model)}]})

    def _entry(self, model: ServedModel) -> dict[str, object]:
        started = int(self._state.totals.started)
        return {
            "id": model.name,
            "object": "model",
            "created": started,
            "owned_by": "dflash2-mlx",
            "type": "model",
            "display_name": model.name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
            "lifecycle": "active",
            **dict.fromkeys(("max_model_len", "context_length", "max_input_tokens", "max_tokens"), model.context),
            "draft": model.draft_name,
        }


def _model(model: ServedModel | None) -> Mapping[str, object]:
    if model is None:
        return {"model": None, "model_memory_used": 0}
    off = model.speculation_off
    return {
        "model": model.name,
        "draft": model.draft_name,
        "context_length": model.context,
        "model_memory_used": model.weight_bytes,
        "effective_engine": "plain" if off else "dflash2",
        "dflash_requested": model.draft_name is not None,
        "dflash_active": off is None,
        "dflash_fallback_reason": off,
        "block_size": model.block_size,
        "block_size_reason": model.block_size_reason,
        "reasoning_levels": dict(model.chat.levels),
    }


def _cache(kept: Kept) -> Mapping[str, object]:
    return {
        "prefix_cache_bytes": kept.nbytes,
        "prefix_cache_entries": kept.boundaries,
        "prefix_cache_budget_bytes": kept.budget_bytes,
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
