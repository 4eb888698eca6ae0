"""Bodies of Anthropic's requests. Says which types a field has, not what it does."""

from dflash2_mlx.server.fields import Fields, Object


class CountBody(Fields):
    """`POST /v1/messages/count_tokens`."""

    messages: list[Object]
    system: str | list[Object] | None = None
    tools: list[Object] | None = None
    tool_choice: Object | None = None
    thinking: Object | None = None
    output_config: Object | None = None


class MessagesBody(CountBody):
    """`POST /v1/messages`."""

    max_tokens: int
    stop_sequences: list[str] | None = None
