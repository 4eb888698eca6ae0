"""Bodies of Anthropic's requests. Says which types a field has, not what it does."""

from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.fields import Fields
from dflash2_mlx.server.reading import RequestObject


class Thinking(RequestObject):
    """budget_tokens: read where the type is `enabled`."""

    type: str
    budget_tokens: int | None = None


class OutputConfig(RequestObject):
    """effort: a client's word for how much is thought."""

    effort: str | None = None
    format: object = None


class ToolChoice(RequestObject):
    """type: auto, none, any or tool."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class CountBody(Fields):
    """`POST /v1/messages/count_tokens`."""

    messages: list[JsonObject]
    system: str | list[JsonObject] | None = None
    tools: list[JsonObject] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    thread: JsonObject | None = None


class MessagesBody(CountBody):
    """`POST /v1/messages`."""

    max_tokens: int
    stop_sequences: list[str] | None = None
