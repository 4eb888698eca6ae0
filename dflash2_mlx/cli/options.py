"""Every option of every command, once. Knows typer only."""

from pathlib import Path
from typing import Annotated

import typer

_MODEL, _SAMPLING, _TEXT, _OUTPUT = "Pair", "Sampling (defaults: the model's own)", "Text", "Output"
_SERVER = "Server"
KEY_VARIABLE = "DFLASH2_MLX_API_KEY"  # of the server's key, for the server and for all that asks it

PromptArgument = Annotated[
    str | None,
    typer.Argument(
        help="What to answer; - or nothing reads it from stdin. Behind a prompt follows what a pipe brings if it starts"
        " within 3 s, or a file on stdin unless a shell's loop is reading it. In a loop over a pipe, add </dev/null."
    ),
]
StdIn = Annotated[
    bool,
    typer.Option("--stdin", help="Read stdin to its end, however long that takes.", rich_help_panel=_TEXT),
]
PromptFile = Annotated[
    Path | None, typer.Option("--prompt-file", help="Read the prompt from a UTF-8 file.", rich_help_panel=_TEXT)
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="Target: folder, owner/name\\[@revision], or alias. Default: DFLASH2_MODEL, else qwen3.8-27b where it "
        "fits and is in the cache, else demo.",
        rich_help_panel=_MODEL,
    ),
]
Draft = Annotated[
    str | None,
    typer.Option("--draft", help="Drafter: the same kinds of name. Default: the one known.", rich_help_panel=_MODEL),
]
DraftRevision = Annotated[
    str | None, typer.Option("--draft-revision", help="Commit, tag or branch of the drafter.", rich_help_panel=_MODEL)
]
DraftBits = Annotated[
    int | None,
    typer.Option(
        "--draft-bits",
        help="Quantise the drafter on load: 4 or 8; 16 keeps it as stored. Default: 4 for a quantised target, else 16.",
        rich_help_panel=_MODEL,
    ),
]
BlockSize = Annotated[
    str,
    typer.Option(
        "--block-size",
        "-b",
        help="Rows of a block, anchor included; 1 = plain decoding; auto = chosen round by round, at most 5 for a "
        "quantised target, else at most what the drafter was trained with.",
        rich_help_panel=_MODEL,
    ),
]
RequireDraft = Annotated[
    bool, typer.Option("--require-draft", help="Fail where no drafter is known.", rich_help_panel=_MODEL)
]
NoDraft = Annotated[bool, typer.Option("--no-draft", help="Plain decoding.", rich_help_panel=_MODEL)]
Acceptance = Annotated[
    str,
    typer.Option(
        "--acceptance",
        help="coupled: a seed gives the same text at any block size. rejection: the classic rule.",
        rich_help_panel=_SAMPLING,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", "-n", help="At most so many tokens. Default: to the end of the context."),
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", "--temp", "-t", help="0 = greedy.", rich_help_panel=_SAMPLING)
]
TopP = Annotated[float | None, typer.Option("--top-p", help="1 = off.", rich_help_panel=_SAMPLING)]
TopK = Annotated[int | None, typer.Option("--top-k", help="0 = off.", rich_help_panel=_SAMPLING)]
MinP = Annotated[float | None, typer.Option("--min-p", help="0 = off.", rich_help_panel=_SAMPLING)]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Any whole number; default: drawn.", rich_help_panel=_SAMPLING)
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option("--repetition-penalty", help="Over prompt and output; 1 = off.", rich_help_panel=_SAMPLING),
]
PresencePenalty = Annotated[
    float | None, typer.Option("--presence-penalty", help="Over the output; 0 = off.", rich_help_panel=_SAMPLING)
]
FrequencyPenalty = Annotated[
    float | None, typer.Option("--frequency-penalty", help="Over the output; 0 = off.", rich_help_panel=_SAMPLING)
]
LogitBias = Annotated[
    list[str] | None,
    typer.Option("--logit-bias", help="ID=NUMBER, added to that token's logit; may repeat.", rich_help_panel=_SAMPLING),
]
Logprobs = Annotated[
    int | None,
    typer.Option(
        "--logprobs", help="With --json: logprobs of every token and its N likeliest.", rich_help_panel=_OUTPUT
    ),
]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", help="End the answer before this text; may repeat.", rich_help_panel=_TEXT)
]
System = Annotated[str | None, typer.Option("--system", help="System message.", rich_help_panel=_TEXT)]
Tools = Annotated[
    Path | None, typer.Option("--tools", help="JSON file: a list of OpenAI function tools.", rich_help_panel=_TEXT)
]
Reasoning = Annotated[
    str | None,
    typer.Option(
        "--reasoning",
        help="off, minimal, low, medium, high, xhigh or max. Default: the template's.",
        rich_help_panel=_TEXT,
    ),
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Continue the prompt as it is: no chat template.", rich_help_panel=_TEXT)
]
ChatModel = Annotated[str | None, typer.Argument(metavar="MODEL", help="The same as --model.", show_default=False)]
Continue = Annotated[
    bool, typer.Option("--continue", "-c", help="Go on with the last conversation.", rich_help_panel=_TEXT)
]
ShowStats = Annotated[bool, typer.Option("--stats", help="Numbers of the answer on stderr.", rich_help_panel=_OUTPUT)]
NoColor = Annotated[
    bool, typer.Option("--no-color", help="No colours; NO_COLOR does the same.", rich_help_panel=_OUTPUT)
]
NoHistory = Annotated[
    bool, typer.Option("--no-history", help="Keep nothing of what is typed and said.", rich_help_panel=_OUTPUT)
]
PairArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PAIR",
        help="Alias (see `models`) or owner/name\\[@revision] of a target or drafter. Default: DFLASH2_MODEL, else "
        "the pair that `doctor` shows.",
    ),
]
VerifiedPair = Annotated[
    str | None,
    typer.Argument(metavar="PAIR", help="Alias, folder or owner/name\\[@revision]. Default: the pair that answers."),
]
Record = Annotated[bool, typer.Option("--record", help="Note the hashes of a folder's files as they are now.")]
Clean = Annotated[bool, typer.Option("--clean", help="Remove what is of no use any more.")]
TargetOnly = Annotated[bool, typer.Option("--target-only", help="Only the target.")]
DraftOnly = Annotated[bool, typer.Option("--draft-only", help="Only the drafter.")]
SavedDraftBits = Annotated[
    int | None,
    typer.Option(
        "--draft-bits",
        help="Also keep the drafter quantised to 4 or 8 bits, under DFLASH2_CACHE (~/.cache/dflash2-mlx), so that "
        "loading it in these bits reads less and quantises nothing.",
    ),
]
Host = Annotated[
    str, typer.Option("--host", help="Address to listen on; any but the loopback needs a key.", rich_help_panel=_SERVER)
]
Port = Annotated[int, typer.Option("--port", help="0 = any free one.", rich_help_panel=_SERVER)]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", help="Clients must send it. Default: DFLASH2_MLX_API_KEY.", rich_help_panel=_SERVER),
]
CorsOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--cors-origin", help="Pages of this origin may call; * = all pages; may repeat.", rich_help_panel=_SERVER
    ),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        help="A name beside localhost that it is addressed by, say host.docker.internal; may repeat.",
        rich_help_panel=_SERVER,
    ),
]
Images = Annotated[
    str,
    typer.Option(
        "--images",
        help="Images in a user's message, which no model here sees: refuse, or placeholder (a text in their place).",
        rich_help_panel=_SERVER,
    ),
]
ServedName = Annotated[
    str | None,
    typer.Option("--served-model-name", help="What clients call it. Default: --model.", rich_help_panel=_SERVER),
]
MaxContext = Annotated[
    int | None,
    typer.Option(
        "--max-context", help="Most tokens of prompt and answer. Default: the model's.", rich_help_panel=_SERVER
    ),
]
MaxQueue = Annotated[int, typer.Option("--max-queue", help="Most requests that wait.", rich_help_panel=_SERVER)]
PrefixCacheGb = Annotated[
    float | None,
    typer.Option(
        "--prefix-cache-gb",
        help="Memory for what earlier requests began with; 0 = off. Default: a quarter of what is left.",
        rich_help_panel=_SERVER,
    ),
]
SseKeepAlive = Annotated[
    str,
    typer.Option(
        "--sse-keepalive",
        help="What a stream sends while nothing comes: comment, chunk (for clients that ignore comments) or off.",
        rich_help_panel=_SERVER,
    ),
]
EffortMap = Annotated[
    list[str] | None,
    typer.Option(
        "--effort-map",
        help="WORD=LEVEL: a client's reasoning effort, said otherwise; may repeat.",
        rich_help_panel=_SERVER,
    ),
]
LogLevel = Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.", rich_help_panel=_SERVER)]
OpenPage = Annotated[
    bool, typer.Option("--open", help="Open the chat page in the browser once it answers.", rich_help_panel=_SERVER)
]
Client = Annotated[str, typer.Argument(help="claude, codex, opencode or openwebui.")]
ClientArguments = Annotated[list[str] | None, typer.Argument(help="Arguments of the client's own, after --.")]
BaseUrl = Annotated[str, typer.Option("--base-url", help="Where the server is.")]
ServerKey = Annotated[
    str | None, typer.Option("--api-key", help="The server's key. Default: DFLASH2_MLX_API_KEY.", show_default=False)
]
ServerModel = Annotated[str | None, typer.Option("--model", "-m", help="Default: the one that is served.")]
RunClient = Annotated[bool, typer.Option("--exec", help="Run the client instead of printing the command.")]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document instead of streamed text.", rich_help_panel=_OUTPUT)
]
JsonDocument = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
ExaminedPair = Annotated[
    str | None,
    typer.Argument(
        metavar="PAIR",
        help="Alias, folder or repository id of the target. Default: DFLASH2_MODEL, else qwen3.8-27b where it fits.",
    ),
]
Context = Annotated[
    int | None,
    typer.Option("--context", "-c", help="Tokens of prompt and answer together. Default: 8192, or the model's."),
]
