"""What all requests of one server share: the engine thread, the settings, the counters. Knows no request."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dflash2_mlx.server.errors import ApiError
from dflash2_mlx.server.model import Engine, ServedModel
from dflash2_mlx.server.openai.remembered import Remembered
from dflash2_mlx.server.settings import ServeSettings
from dflash2_mlx.server.usage import Totals
from dflash2_mlx.server.worker import QueueFullError, Worker

_OPEN_FACTOR = 2  # exchanges open at once, as a multiple of what the queue and the engine hold


@dataclass(slots=True)
class ServerState:
    """What all requests share. `renderer`: one thread that parses and renders, so that the event loop stays free."""

    worker: Worker[Engine]
    settings: ServeSettings
    totals: Totals = field(default_factory=Totals)
    renderer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "dflash2-render"))
    responses: Remembered = field(default_factory=Remembered)
    open: int = 0

    def model(self) -> ServedModel:
        """The model. Raises: ApiError 503 while it loads, or once the engine is gone."""
        engine, state = self.worker.opened, self.worker.state
        if state == "ready" and engine is not None:
            return engine.model
        if state == "loading":
            raise ApiError(503, "loading", "the model is loading. Try again soon.", headers={"Retry-After": "2"})
        raise ApiError(503, "engine_dead", f"the engine is {state}. Restart the server; its log says why.")

    def check_room(self) -> None:
        """Raise QueueFullError where another request could only wait for a place in the queue."""
        self.worker.check_queue()
        if self.open >= _OPEN_FACTOR * (self.worker.max_queue + 1):
            raise QueueFullError(f"{self.open} requests are open, which is the most. Try again later.", 1)
