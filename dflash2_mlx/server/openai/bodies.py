"""Bodies of OpenAI's requests. Says which types a field has, not what it does."""

from dflash2_mlx.server.body import JsonObject
from dflash2_mlx.server.fields import Fields
from dflash2_mlx.server.reading import RequestObject


class StreamOptions(RequestObject):
    """`{}` asks for nothing."""

    include_usage: bool | None = None


class ChatStreamOptions(StreamOptions):
    """include_drafted: each chunk with text says which of it was drafted, and what its rounds did."""

    include_drafted: bool | None = None


class CompletionFields(Fields):
    """What OpenAI's chat and text completions share."""

    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None


class ChatBody(CompletionFields):
    """`POST /v1/chat/completions`."""

    messages: list[JsonObject]
    stream_options: ChatStreamOptions | None = None
    speculate: bool | None = None  # false: plain decoding, which gives the same text
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    response_format: JsonObject | None = None
    modalities: list[str] | None = None
    reasoning_effort: str | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: JsonObject | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class CompletionBody(CompletionFields):
    """`POST /v1/completions`."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None


class Reasoning(RequestObject):
    """effort: a client's word for how much is thought."""

    effort: str | None = None


class TextForm(RequestObject):
    """format: text, or a form that is not enforced."""

    format: object = None


class ConversationReference(RequestObject):
    """A conversation by its id."""

    id: str


class ResponsesBody(Fields):
    """`POST /v1/responses`."""

    input: str | list[JsonObject]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextForm | None = None
    metadata: JsonObject | None = None
    truncation: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    store: bool | None = None
    background: bool | None = None
    top_logprobs: int | None = None

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the request belongs to."""
        return self.conversation.id if isinstance(self.conversation, ConversationReference) else self.conversation


class ConversationBody(RequestObject):
    """`POST /v1/conversations`, and further items of one."""

    items: list[JsonObject] | None = None
    metadata: JsonObject | None = None
