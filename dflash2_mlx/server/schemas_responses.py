"""Bodies of OpenAI's responses requests. Says which types a field has, not what it does."""

from dflash2_mlx.server.fields import Fields

Object = dict[str, object]


class ResponsesBody(Fields):
    """`POST /v1/responses`. Nothing is stored, so each request carries its whole conversation."""

    input: str | list[Object]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[Object] | None = None
    tool_choice: str | Object | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Object | None = None
    text: Object | None = None
    metadata: Object | None = None
    truncation: str | None = None
    previous_response_id: str | None = None
    background: bool | None = None
    top_logprobs: int | None = None
