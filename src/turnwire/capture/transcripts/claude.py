"""Claude Code's transcripts (`~/.claude/projects/*/*.jsonl`) as captured turns.

Promise: each answer of the model is one turn of the Messages API, with the conversation as its chain of lines tells it:
a rewind leaves out what was taken back, a compaction begins anew. Sub-agents keep their ids. Unknown lines are passed
over; fields that are not what they should be cost their own line alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turnwire.capture.format import CapturedTurn, ParsedBlock
from turnwire.capture.transcripts.draft import Draft, Usage, moment

__all__ = ["SOURCE", "claude_turns"]

SOURCE = "claude-code"
_MOST_TOKENS = 32_000


def claude_turns(lines: Iterable[dict[str, Any]]) -> list[CapturedTurn]:
    """The turns of a transcript's lines, in the order in which they began."""
    threads: dict[tuple[str, str], _Thread] = {}
    for line in lines:
        session, agent = line.get("sessionId"), line.get("agentId")
        if not isinstance(session, str):
            continue
        if not isinstance(agent, str):
            agent = "sidechain" if line.get("isSidechain") is True else ""
        thread = threads.setdefault((session, agent), _Thread(session, agent or None))
        thread.add(line)
    return [turn for thread in threads.values() for turn in thread.turns()]


class _Thread:
    """One agent's lines."""

    def __init__(self, session: str, agent: str | None) -> None:
        self._session = session
        self._agent = agent
        self._client = "claude-cli"
        self._messages: list[dict[str, Any]] = []
        self._system = ""
        self._asked = 0.0
        # How many messages of the conversation a line, and all before it, are.
        self._after: dict[str, int] = {}
        self._drafts: dict[str, Draft] = {}

    def add(self, line: dict[str, Any]) -> None:
        """The next line."""
        kind, message, uuid = line.get("type"), line.get("message"), str(line.get("uuid"))
        if isinstance(version := line.get("version"), str):
            self._client = f"claude-cli/{version}"
        parent = line.get("parentUuid")
        if kind in ("user", "assistant") and isinstance(message, dict):
            if kind == "user":
                self._rewind(parent if isinstance(parent, str) else None)
                self._messages.append({"role": "user", "content": message.get("content", "")})
                self._asked = moment(line.get("timestamp"))
            else:
                self._answered(line, message)
            self._after[uuid] = len(self._messages)
        elif isinstance(parent, str):
            self._after[uuid] = self._after.get(parent, len(self._messages))
        attached = line.get("attachment")
        if isinstance(attached, dict) and isinstance(told := attached.get("systemPrompt"), list):
            self._system = "\n\n".join(part for part in told if isinstance(part, str))

    def _rewind(self, parent: str | None) -> None:
        """Leave out what was said after `parent`, if the model answered since: results of several calls each name
        their own call, and belong together."""
        kept = self._after.get(parent, len(self._messages)) if parent is not None else 0
        if any(message["role"] == "assistant" for message in self._messages[kept:]):
            del self._messages[kept:]

    def _answered(self, line: dict[str, Any], message: dict[str, Any]) -> None:
        """A line holds one block of an answer, or several; lines of one answer share its id."""
        name, content = message.get("id"), message.get("content")
        if not isinstance(name, str) or not isinstance(content, list) or message.get("model") == "<synthetic>":
            return
        draft = self._drafts.get(name)
        if draft is None:
            draft = self._drafts[name] = self._begun(name, str(message.get("model")))
            self._messages.append({"role": "assistant", "content": []})
        at = moment(line.get("timestamp"))
        for part in content:
            if isinstance(part, dict) and (block := _block(part)) is not None:
                draft.add(at, block, str(part.get("id")))
                self._messages[-1]["content"].append(part)
        if isinstance(usage := message.get("usage"), dict):
            draft.usage = _usage(usage)

    def _begun(self, name: str, model: str) -> Draft:
        body = {"model": model, "max_tokens": _MOST_TOKENS, "stream": True, "messages": list(self._messages)}
        if self._system:
            body["system"] = self._system
        draft = Draft(name, "messages", model, at=self._asked, body=body, source=SOURCE)
        draft.place = sum(message["role"] == "assistant" for message in self._messages)
        return draft

    def turns(self) -> list[CapturedTurn]:
        return [
            draft.turn(session=self._session, parent=None, agent=self._agent, client=self._client)
            for draft in self._drafts.values()
        ]


def _block(part: dict[str, Any]) -> ParsedBlock | None:
    kind = part.get("type")
    if kind == "text":
        return ParsedBlock(kind="text", text=str(part.get("text", "")))
    if kind == "thinking":
        return ParsedBlock(kind="reasoning", text=str(part.get("thinking", "")))
    if kind == "tool_use":
        return ParsedBlock(kind="tool_call", name=str(part.get("name", "")), arguments=part.get("input"))
    return None


def _usage(told: dict[str, Any]) -> Usage:
    def count(name: str) -> int:
        value = told.get(name)
        return value if isinstance(value, int) else 0

    cached, written = count("cache_read_input_tokens"), count("cache_creation_input_tokens")
    details = told.get("output_tokens_details")
    thought = details.get("thinking_tokens") if isinstance(details, dict) else 0
    return Usage(
        prompt=count("input_tokens") + cached + written,
        cached=cached,
        output=count("output_tokens"),
        reasoning=thought if isinstance(thought, int) else 0,
    )
