"""The vocabulary of the house: blocks, messages, tools, a conversation, and the ordered events of a turn.

Promise: frozen values, equal by content, no I/O and no clock. Every package speaks only this, and the order of blocks
is always the order in which the model (or the client) wrote them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

__all__ = [
    "Block",
    "BlockClosed",
    "BlockDelta",
    "BlockKind",
    "BlockOpened",
    "CodeRun",
    "Conversation",
    "Event",
    "Finding",
    "FinishReason",
    "Finished",
    "HistoryThinking",
    "HostedAnswer",
    "HostedAnswered",
    "HostedCalled",
    "HostedUse",
    "ImageBlock",
    "Message",
    "Note",
    "OpaqueBlock",
    "OutputFormat",
    "ReasoningBlock",
    "Role",
    "Sampling",
    "SealCarried",
    "TextBlock",
    "Thinking",
    "TokensScored",
    "Tool",
    "ToolCallBlock",
    "ToolCallClosed",
    "ToolChoice",
    "ToolResultBlock",
    "TurnContext",
    "TurnReport",
    "Usage",
]

JSON: TypeAlias = Any
"""A decoded JSON value (what msgspec.json.decode returns)."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of every vocabulary value that is not per-token hot."""


# ---------------------------------------------------------------------------------------------------- blocks


class TextBlock(_Value, frozen=True, tag="text"):
    """Prose, byte for byte."""

    text: str


class ReasoningBlock(_Value, frozen=True, tag="reasoning"):
    """A thought. `seal` is the opaque carrier that came back with it (Anthropic `signature`, Responses
    `encrypted_content`); `redacted` means the client returned only the carrier and no text."""

    text: str
    seal: str | None = None
    redacted: bool = False


class ToolCallBlock(_Value, frozen=True, tag="tool_call"):
    """A call the assistant made. `arguments` is JSON text exactly as the client sent it (for `kind="custom"` it is
    the raw input text); it is never re-serialised on the way in."""

    id: str
    name: str
    arguments: str
    namespace: str | None = None
    kind: Literal["function", "custom"] = "function"


class ImageBlock(_Value, frozen=True, tag="image"):
    """An image given inline (`data`, base64) or by reference (`url`)."""

    media_type: str = ""
    data: str = ""
    url: str = ""
    detail: str | None = None


class OpaqueBlock(_Value, frozen=True, tag="opaque"):
    """A carrier for what we do not know but must not lose: the block's JSON text as received, and what the wire
    called it."""

    wire_type: str
    payload: str


class ToolResultBlock(_Value, frozen=True, tag="tool_result"):
    """What a tool answered. `call_id` names the call; `content` keeps the parts in order; `references` are names of
    deferred tools that this result loads into view."""

    call_id: str
    content: tuple[TextBlock | ImageBlock | OpaqueBlock, ...] = ()
    is_error: bool = False
    name: str | None = None
    references: tuple[str, ...] = ()


Block: TypeAlias = TextBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock | ImageBlock | OpaqueBlock
Role: TypeAlias = Literal["system", "developer", "user", "assistant"]


_ILLUSTRATED = (ImageBlock, ToolResultBlock)
"""The blocks in which there may be an image."""


class Message(_Value, frozen=True, cache_hash=True):
    """One message. Tool results live in messages of role `user` (as on the Anthropic wire), in the order received."""

    role: Role
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The message's text blocks joined; what a person would read."""
        return "".join([block.text for block in self.blocks if type(block) is TextBlock])

    @property
    def images(self) -> tuple[ImageBlock, ...]:
        """Its images in the order of the prompt, where results come first."""
        results = (part for block in self.blocks if type(block) is ToolResultBlock for part in block.content)
        return tuple(block for block in (*results, *self.blocks) if type(block) is ImageBlock)


# ----------------------------------------------------------------------------------------------------- tools


class Tool(_Value, frozen=True):
    """A tool on offer. `schema` is the JSON schema of its arguments. A `custom` tool takes raw text, perhaps under a
    `grammar` (`grammar_syntax` is `lark` or `regex`). `deferred` tools stay out of the prompt's tool section until a
    ToolResultBlock references them. `namespace` is given back beside the name on Responses."""

    name: str
    description: str = ""
    schema: dict[str, JSON] = {}
    kind: Literal["function", "custom"] = "function"
    grammar: str | None = None
    grammar_syntax: str | None = None
    namespace: str | None = None
    strict: bool = False
    deferred: bool = False


class ToolChoice(_Value, frozen=True):
    """Whether the model may, must or must not call: `named` goes with `name`."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True


class HostedUse(_Value, frozen=True):
    """How a request may use a tool that the gateway runs: `kind` is what the APIs call it, `server` and `tool` where it
    is run. At most `most` calls; results only from the `allowed` and never from the `blocked` domains. `stores` are
    the vector stores that are searched, for at most `results` passages."""

    kind: Literal["web_search", "web_fetch", "code_execution", "bash_code_execution", "file_search", "mcp"]
    server: str
    tool: str = ""
    most: int | None = None
    allowed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    results: int | None = None


class Finding(_Value, frozen=True):
    """One result of a search: `text` is exactly what the model reads of it. `file` and `score` are those of a passage
    that was found in a file."""

    title: str
    url: str
    text: str
    age: str = ""
    file: str = ""
    score: float | None = None


class CodeRun(_Value, frozen=True):
    """What a program wrote, and how it ended."""

    stdout: str = ""
    stderr: str = ""
    return_code: int = 0


class HostedAnswer(_Value, frozen=True):
    """What a tool that the gateway ran has answered: findings, a text, or a program's `run`; `error` is the code of a
    failure."""

    findings: tuple[Finding, ...] = ()
    text: str = ""
    run: CodeRun | None = None
    error: str = ""


# ------------------------------------------------------------------------------------------------- a request


class Sampling(_Value, frozen=True):
    """Sampling wishes; None means the model's own default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    logit_bias: dict[str, float] = {}


HistoryThinking: TypeAlias = Literal["keep", "model", "drop"]


class Thinking(_Value, frozen=True):
    """What the client wants of reasoning. `mode` None: it said nothing (the model's default holds).
    `history` says which earlier thoughts to show: `model` = the template's own rule, `keep` = all, `drop` = none;
    `keep_turns` bounds `keep` to the last N assistant turns with thoughts."""

    mode: Literal["on", "off", "adaptive"] | None = None
    budget: int | None = None
    effort: str | None = None
    history: HistoryThinking | None = None
    keep_turns: int | None = None


class OutputFormat(_Value, frozen=True):
    """Structured output: any JSON object, or JSON that fits `schema`."""

    kind: Literal["json_object", "json_schema"]
    schema: dict[str, JSON] | None = None
    name: str = "output"
    strict: bool = True


class TurnContext(_Value, frozen=True):
    """Who asks and how urgent it is, gathered from headers and metadata. None of it ever reaches the prompt.
    `turn_class` is main, subagent, workflow, compaction, auxiliary, title or background. Of waiting turns those of a
    higher `tier` are served first, within one those of a higher `priority`; `weight` is the share of whoever asks.
    `urgency` (0 to 1) is what waiting weighs against reading a prompt again; `expected_output` is how many tokens the
    client expects, `patience` how many seconds it waits for a worker. `read_ahead` asks for the next prompt to be read
    early. `cache_salt` keeps the engine's prefix cache of this request apart from others of the same tenant; `worker`
    is the number of the worker that the client wants."""

    session: str | None = None
    parent: str | None = None
    agent: str | None = None
    window: str | None = None
    turn_class: str = "main"
    priority: int = 0
    final: bool = False
    client: str | None = None
    tier: int = 0
    weight: float = 1.0
    urgency: float = 0.7
    expected_output: int | None = None
    patience: float | None = None
    read_ahead: bool = False
    cache_salt: str | None = None
    worker: int | None = None


class Conversation(_Value, frozen=True):
    """Everything a turn is generated from, in one value that no API owns."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    sampling: Sampling = Sampling()
    thinking: Thinking = Thinking()
    format: OutputFormat | None = None
    template_args: dict[str, JSON] = {}
    context: TurnContext = TurnContext()

    @property
    def assistant_turns(self) -> int:
        """How many assistant turns the history holds; adjacent assistant messages are one turn."""
        turns, before = 0, ""
        for message in self.messages:
            if message.role == "assistant" and before != "assistant":
                turns += 1
            before = message.role
        return turns

    @property
    def tools_in_view(self) -> tuple[Tool, ...]:
        """The tools that the model can see: a deferred one counts once a result has loaded it."""
        if not any(tool.deferred for tool in self.tools):
            return self.tools
        loaded = {
            name
            for message in self.messages
            for block in message.blocks
            if isinstance(block, ToolResultBlock)
            for name in block.references
        }
        return tuple(tool for tool in self.tools if not tool.deferred or tool.name in loaded)

    @property
    def images(self) -> tuple[ImageBlock, ...]:
        """Every image in the order of the prompt: what tools returned comes before what its message adds."""
        found: list[ImageBlock] = []
        for message in self.messages:
            for block in message.blocks:
                if type(block) in _ILLUSTRATED:
                    found += message.images
                    break
        return tuple(found)

    @property
    def last_user_text(self) -> str:
        """The text of the last user message that has any."""
        for message in reversed(self.messages):
            if message.role == "user" and message.text:
                return message.text
        return ""


# ---------------------------------------------------------------------------------------------------- events
#
# A turn is an ordered list of events. Each block opens once, gets deltas, closes once, in order of `index`; exactly
# one Finished ends the turn. Every event of the parser carries `raw`, the model text it came from: joining the `raw`
# of all events gives the model's output back, character for character.

BlockKind: TypeAlias = Literal["text", "reasoning", "tool_call"]
FinishReason: TypeAlias = Literal[
    "stop", "length", "tool_calls", "stop_sequence", "content_filter", "paused", "abort", "error"
]


class _Event(msgspec.Struct, frozen=True, gc=False):
    """Base of the per-token values: positional, untracked by the collector."""


class BlockOpened(_Event, frozen=True, tag="block_opened"):
    """A block begins. For a tool call the name is known; `call_id` is set by the gateway (or native to the format)."""

    index: int
    kind: BlockKind
    name: str = ""
    call_id: str = ""
    raw: str = ""


class BlockDelta(_Event, frozen=True, tag="block_delta"):
    """More of the open block: prose, thought, or argument text (JSON)."""

    index: int
    text: str
    raw: str = ""


class BlockClosed(_Event, frozen=True, tag="block_closed"):
    """A text or reasoning block ends. `seal` is added by the gateway to reasoning blocks."""

    index: int
    kind: BlockKind
    seal: str = ""
    raw: str = ""


class ToolCallClosed(_Event, frozen=True, tag="tool_call_closed"):
    """A tool call ends. `arguments` is the whole argument text: valid JSON, or `malformed` is true and it is the raw
    text that the model wrote."""

    index: int
    name: str
    arguments: str
    call_id: str = ""
    malformed: bool = False
    raw: str = ""


class HostedCalled(_Event, frozen=True, tag="hosted_called"):
    """The model called a tool that the gateway runs itself."""

    index: int
    call_id: str
    name: str
    arguments: str
    use: HostedUse


class HostedAnswered(_Event, frozen=True, tag="hosted_answered"):
    """Such a call has its answer."""

    index: int
    call: HostedCalled
    answer: HostedAnswer


class SealCarried(_Event, frozen=True, tag="seal_carried"):
    """A seal that belongs to no reasoning block: it covers what the model wrote after the last one. Encoders put it
    in a trailing carrier where their API has one. `more`: the answer goes on after it."""

    index: int
    seal: str
    more: bool = False


class Note(_Event, frozen=True, tag="note"):
    """Something a person may want to know: a rescue, an ignored field, a rewritten block. `code` is stable."""

    code: str
    message: str = ""
    raw: str = ""


class TokensScored(_Event, frozen=True, tag="tokens_scored"):
    """Log probabilities of the tokens of the last delta: token, its value, and its best rivals."""

    tokens: tuple[tuple[str, float, tuple[tuple[str, float], ...]], ...]


class Usage(_Event, frozen=True, tag="usage"):
    """Token counts by the engine's own account. `cached` is the part of `prompt` that came from its prefix cache."""

    prompt: int
    cached: int = 0
    output: int = 0
    reasoning: int = 0


class TurnReport(_Event, frozen=True, tag="turn_report"):
    """What the client asked to know of its turn: members of the answer's `nvext`."""

    fields: dict[str, JSON]


class Finished(_Event, frozen=True, tag="finished"):
    """The turn is over. `stop_sequence` names the client's stop string that ended it."""

    reason: FinishReason
    stop_sequence: str | None = None
    raw: str = ""


Event: TypeAlias = (
    BlockOpened
    | BlockDelta
    | BlockClosed
    | ToolCallClosed
    | HostedCalled
    | HostedAnswered
    | SealCarried
    | TokensScored
    | Note
    | TurnReport
    | Usage
    | Finished
)
