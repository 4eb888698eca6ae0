"""How the server listens and what it allows. Knows nothing of requests and loads nothing heavy."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from dflash2_mlx.errors import UsageError
from dflash2_mlx.server.worker import DEFAULT_QUEUE

KeepAlive = Literal["comment", "chunk", "off"]
KEEP_ALIVES = ("comment", "chunk", "off")
Images = Literal["refuse", "placeholder"]
IMAGES = ("refuse", "placeholder")
DEFAULT_PORT = 8000
MOST_BODY_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The settings of one server.

    cors_origins: pages of these origins may call it (`*` = all). allowed_hosts: names beside the loopback's own that a
    request may address it by. max_context: the most tokens of prompt and answer, None = the model's. cache_bytes: what
    prefixes of earlier requests may hold, 0 = nothing is kept, None = a share of the memory. images: what is done with
    one in a user's message, which no model here sees; one in a tool's result is always left out. effort_map: a client's
    effort word -> ours. keep_alive_s, receive_s: seconds between signs of life, and a client's time for a request's
    head, for each further piece of it, and for taking a piece of the answer.

    Raises: UsageError for a value outside its range, or an address others can reach without a key.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    max_context: int | None = None
    max_queue: int = DEFAULT_QUEUE
    block_size: int | None = None
    keep_alive: KeepAlive = "comment"
    images: Images = "refuse"
    served_name: str | None = None
    cache_bytes: int | None = None
    effort_map: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    keep_alive_s: float = 5.0
    receive_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise UsageError(f"port is {self.port}. Give one from 1 to 65535, or 0 for any free one.")
        if self.keep_alive not in KEEP_ALIVES:
            raise UsageError(f"sse-keepalive is {self.keep_alive!r}. Give {', '.join(KEEP_ALIVES)}.")
        if self.images not in IMAGES:
            raise UsageError(f"images is {self.images!r}. Give {' or '.join(IMAGES)}.")
        if self.max_queue < 1 or (self.max_context is not None and self.max_context < 1):
            raise UsageError("max-queue and max-context are at least 1.")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.strip()):
            raise UsageError("the API key is empty or not ASCII. Give another one, or none.")
        if self.api_key is None and not self.on_loopback:
            raise UsageError(
                f"host {self.host} is reachable from other machines, and no API key is set. "
                "Give one with --api-key or DFLASH2_MLX_API_KEY, or stay on 127.0.0.1."
            )

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address without a port, means this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
