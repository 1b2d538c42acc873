"""A small streaming agent of our own: a conversation with tools, memory and retrieval, over any OpenAI-compatible
endpoint. See docs/agent.md."""

from turnwire.agent.blocking import ChatSession
from turnwire.agent.endpoint import Endpoint, EndpointError
from turnwire.agent.events import (
    AgentEvent,
    Answered,
    Cancelled,
    Ended,
    MemoryTrimmed,
    ReasoningDelta,
    Refused,
    StepFinished,
    StepLimitReached,
    StepStarted,
    TextDelta,
    Tokens,
    ToolFinished,
    ToolStarted,
)
from turnwire.agent.grounding import Grounding
from turnwire.agent.memory import Memory
from turnwire.agent.retrieval import Library, Passage
from turnwire.agent.session import AsyncChatSession
from turnwire.agent.tools import Tool, ToolDefinitionError, ToolResult, tool_cancelled

__all__ = [
    "AgentEvent",
    "Answered",
    "AsyncChatSession",
    "Cancelled",
    "ChatSession",
    "Ended",
    "Endpoint",
    "EndpointError",
    "Grounding",
    "Library",
    "Memory",
    "MemoryTrimmed",
    "Passage",
    "ReasoningDelta",
    "Refused",
    "StepFinished",
    "StepLimitReached",
    "StepStarted",
    "TextDelta",
    "Tokens",
    "Tool",
    "ToolDefinitionError",
    "ToolFinished",
    "ToolResult",
    "ToolStarted",
    "tool_cancelled",
]
