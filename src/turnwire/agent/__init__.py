"""A small streaming agent of our own: a conversation with tools, memory and retrieval, over any OpenAI-compatible
endpoint. See docs/agent.md."""

from turnwire.agent.approval import Approval, ApproveTool, ToolRequest
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
    ToolRefused,
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
    "Approval",
    "ApproveTool",
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
    "ToolRefused",
    "ToolRequest",
    "ToolResult",
    "ToolStarted",
    "tool_cancelled",
]
