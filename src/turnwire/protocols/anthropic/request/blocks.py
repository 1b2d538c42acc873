"""Content of a message: a string or any list of blocks becomes vocabulary blocks, in the order sent.

Promise: a string and a list with one text block give the same value, with or without cache marks. A block that is not
understood is kept whole in an OpaqueBlock and noted. Tool inputs keep the client's own JSON text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

import msgspec

from turnwire.protocols.anthropic.request.tool_changes import TOOL_CHANGES, read_tool_change
from turnwire.protocols.anthropic.vocabulary import NO_SEAL, UNPARSED_INPUT
from turnwire.protocols.fields.body import (
    any_value,
    check_depth,
    check_numbers,
    elements,
    first_byte,
    invalid,
    part,
    text_of,
)
from turnwire.protocols.fields.contents import MESSAGE_BLOCK, content_notes
from turnwire.protocols.fields.decoded import PartNote
from turnwire.protocols.hosted.message_blocks import CALLS, RESULTS, called_name, own_id, read_result, runs
from turnwire.protocols.limits import Limits
from turnwire.turns import (
    JSON,
    Block,
    ImageBlock,
    OpaqueBlock,
    ReasoningBlock,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResultBlock,
)
from turnwire.unreadable import UNREADABLE

__all__ = ["BlockReader"]

_CONTENT_DEPTH = 8
_UNDERSTOOD = frozenset(
    {
        "text", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference", "image", "document",
        "search_result", "compaction", *CALLS, *RESULTS, *TOOL_CHANGES,
    }
)  # fmt: skip
"""Blocks of other types are kept whole, with a note on the block."""


class _WireBlock(msgspec.Struct):
    """Every field of every block that is understood; all but the type are optional."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")
    tool_use_id: str | None = None
    content: msgspec.Raw = msgspec.Raw(b"")
    is_error: bool | None = None
    source: msgspec.Raw = msgspec.Raw(b"")
    title: str | None = None
    context: str | None = None
    tool_name: str | None = None
    citations: JSON = None
    server_name: str | None = None


class _KnownBlock(_WireBlock, forbid_unknown_fields=True):
    """A block with no other members than those that are used or ask for nothing: nearly every block."""

    cache_control: msgspec.Raw = msgspec.Raw(b"")
    tool: msgspec.Raw = msgspec.Raw(b"")


class _WireSource(msgspec.Struct):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")


_BLOCK = msgspec.json.Decoder(_WireBlock)
_KNOWN_BLOCK = msgspec.json.Decoder(_KnownBlock)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SOURCE = msgspec.json.Decoder(_WireSource)
_STRING = msgspec.json.Decoder(str)


class BlockReader:
    """Reads the content of one message. Paths start at the message; `notes` and `calls` (id and name of each call) are
    what was found on the way; `tools` grows by those that the message defines (`changes_tools`)."""

    def __init__(self, limits: Limits, tools: dict[str, Tool]) -> None:
        self._limits = limits
        self.tools = tools
        self.count = 0
        self.calls: list[tuple[str, str]] = []
        self.notes: list[PartNote] = []
        self.changes_tools = False
        self._depth = 0

    def content(self, raw: bytes | msgspec.Raw, path: str) -> tuple[Block, ...]:
        """The blocks of a message's `content`."""
        return tuple(block for each, place in self._parts(raw, path) for block in self._block(each, place))

    def _parts(self, raw: bytes | msgspec.Raw, path: str) -> Iterator[tuple[bytes | msgspec.Raw | str, str]]:
        match first_byte(raw):
            case '"':
                yield part(_STRING, raw, path), path
            case "[":
                items = elements(raw, path, "must be a list")
                self.count += len(items)
                if self.count > self._limits.blocks:
                    raise invalid(path, f"more than {self._limits.blocks} content blocks in one request")
                for index, item in enumerate(items):
                    place = f"{path}.{index}"
                    yield (part(_STRING, item, place) if first_byte(item) == '"' else item), place
            case "{":
                yield raw, path
            case "" | "n":
                return
            case _:
                raise invalid(path, "must be a string or a list of content blocks")

    def _block(self, raw: bytes | msgspec.Raw | str, path: str) -> Iterator[Block]:
        if isinstance(raw, str):
            if raw:
                yield TextBlock(text=raw)
            return
        wire = self._wire(raw, path)
        match wire.type:
            case "text":
                if wire.text is None:
                    raise invalid(f"{path}.text", "a text block needs a text")
                if wire.text:
                    yield TextBlock(text=wire.text)
            case "thinking":
                signature = wire.signature
                yield ReasoningBlock(
                    text=wire.thinking or "", seal=signature if signature and signature != NO_SEAL else None
                )
            case "redacted_thinking":
                yield ReasoningBlock(text="", seal=wire.data or None, redacted=True)
            case "tool_use":
                yield self._call(wire, path)
            case kind if kind in CALLS and runs(kind, wire.id, wire.name, wire.server_name):
                yield self._hosted_call(wire, path)
            case kind if kind in RESULTS:
                if not wire.tool_use_id:
                    raise invalid(f"{path}.tool_use_id", "a tool result needs the id of its call")
                content = any_value(wire.content, f"{path}.content", self._limits.depth) if wire.content else None
                yield read_result(kind, wire.tool_use_id, content, bool(wire.is_error))
            case "tool_result":
                yield self._result(wire, path)
            case "image":
                yield self._image(wire, raw, path)
            case "document" | "search_result":
                yield from self._document(wire, raw, path)
            case "compaction":
                yield from self._inner(wire.content, f"{path}.content")
            case kind if kind in TOOL_CHANGES:
                self.changes_tools = True
                yield read_tool_change(raw, path, self.tools, self._limits) or self._opaque(kind, raw, path)
            case kind:
                yield self._opaque(kind, raw, path)

    def _wire(self, raw: bytes | msgspec.Raw, path: str) -> _WireBlock:
        """The block's members, with a note for each that has no effect."""
        try:
            return _KNOWN_BLOCK.decode(raw)
        except UNREADABLE:
            wire = part(_BLOCK, raw, path)
        if wire.type in _UNDERSTOOD:
            members = part(_MEMBERS, raw, path)
            self.notes += content_notes(MESSAGE_BLOCK, members, path)
        return wire

    def _call(self, wire: _WireBlock, path: str) -> ToolCallBlock:
        if not wire.id:
            raise invalid(f"{path}.id", "a tool_use block needs an id")
        if not wire.name:
            raise invalid(f"{path}.name", "a tool_use block needs a name")
        self.calls.append((wire.id, wire.name))
        return ToolCallBlock(id=wire.id, name=wire.name, arguments=self._arguments(wire.input, f"{path}.input"))

    def _hosted_call(self, wire: _WireBlock, path: str) -> ToolCallBlock:
        """A call that a gateway ran; like any other, under the model's name of the tool."""
        block = self._call(wire, path)
        self.calls.pop()
        name, call_id = called_name(block.name, wire.server_name), own_id(wire.type, block.id)
        self.calls.append((call_id, name))
        return msgspec.structs.replace(block, id=call_id, name=name)

    def _arguments(self, raw: msgspec.Raw, path: str) -> str:
        data = bytes(raw)
        check_depth(data, path, self._limits.depth)
        check_numbers(data, path)
        text = data.decode()
        if not text or text == "null":
            return "{}"
        if text[0] == '"':
            # A model that encoded its arguments twice: the client replays the inner text as a string.
            inner = part(_STRING, raw, path)
            self._note("request.input_string", path, "arguments came as a string")
            return inner if _is_object(inner) else text
        if UNPARSED_INPUT in text:
            value = any_value(data, path, self._limits.depth)
            unparsed = value.get(UNPARSED_INPUT) if isinstance(value, dict) else None
            written = unparsed.get("raw") if isinstance(unparsed, dict) else unparsed
            if isinstance(written, str):
                self._note("request.input_unparsed", path, "arguments that are not JSON, kept as written")
                return written
        return text

    def _result(self, wire: _WireBlock, path: str) -> ToolResultBlock:
        if not wire.tool_use_id:
            raise invalid(f"{path}.tool_use_id", "a tool_result block needs the id of its call")
        content: list[TextBlock | ImageBlock | OpaqueBlock] = []
        references: list[str] = []
        for raw, place in self._nested(wire.content, f"{path}.content"):
            name = self._reference(raw, place)
            if name is not None:
                references.append(name)
                continue
            for block in self._block(raw, place):
                if isinstance(block, TextBlock | ImageBlock | OpaqueBlock):
                    content.append(block)
                else:
                    assert not isinstance(raw, str)
                    content.append(self._opaque("nested", raw, place))
        return ToolResultBlock(
            call_id=wire.tool_use_id,
            content=tuple(content),
            is_error=bool(wire.is_error),
            references=tuple(references),
        )

    def _reference(self, raw: bytes | msgspec.Raw | str, path: str) -> str | None:
        if isinstance(raw, str) or b"tool_reference" not in memoryview(raw)[:4096].tobytes():
            return None
        wire = part(_BLOCK, raw, path)
        if wire.type != "tool_reference":
            return None
        if not wire.tool_name:
            raise invalid(f"{path}.tool_name", "a tool_reference needs the tool's name")
        return wire.tool_name

    def _image(self, wire: _WireBlock, raw: bytes | msgspec.Raw, path: str) -> Block:
        source = self._source(wire, path)
        if source.type == "base64" and source.data:
            return ImageBlock(media_type=source.media_type, data=source.data)
        if source.type == "url" and source.url:
            return ImageBlock(media_type=source.media_type, url=source.url)
        return self._opaque(f"image/{source.type}", raw, path)

    def _document(self, wire: _WireBlock, raw: bytes | msgspec.Raw, path: str) -> Iterator[Block]:
        if wire.type == "search_result":
            inner = list(self._inner(wire.content, f"{path}.content"))
        else:
            source = self._source(wire, path)
            text = _document_text(source)
            inner = [TextBlock(text=text)] if text is not None else list(self._inner(source.content, f"{path}.source"))
        if not inner:
            yield self._opaque(wire.type, raw, path)
            return
        if isinstance(wire.citations, dict) and wire.citations.get("enabled"):
            self._note("request.field_ignored", path, "citations: not used; answers carry no citations", "citations")
        heading = "\n".join(line for line in (wire.title, wire.context) if line)
        if heading:
            yield TextBlock(text=heading + "\n\n")
        yield from inner
        # Blocks are joined as they are, so a document must not run into what follows it.
        yield TextBlock(text="\n\n")

    def _inner(self, raw: bytes | msgspec.Raw, path: str) -> Iterator[Block]:
        for each, place in self._nested(raw, path):
            yield from self._block(each, place)

    def _nested(self, raw: bytes | msgspec.Raw, path: str) -> Iterator[tuple[bytes | msgspec.Raw | str, str]]:
        """The parts of content inside content, which no client nests deeply."""
        if self._depth == _CONTENT_DEPTH:
            raise invalid(path, f"content nested deeper than {_CONTENT_DEPTH}")
        self._depth += 1
        yield from self._parts(raw, path)
        self._depth -= 1

    def _source(self, wire: _WireBlock, path: str) -> _WireSource:
        if first_byte(wire.source) != "{":
            raise invalid(f"{path}.source", f"a block of type {wire.type} needs a source object")
        return part(_SOURCE, wire.source, f"{path}.source")

    def _opaque(self, wire_type: str, raw: bytes | msgspec.Raw, path: str) -> OpaqueBlock:
        shown = wire_type[:64]
        self._note("request.block_opaque", path, f"block of type {shown} is kept, but not understood", shown)
        return OpaqueBlock(wire_type=wire_type, payload=text_of(raw))

    def _note(self, code: str, path: str, text: str, subject: str = "") -> None:
        self.notes.append(PartNote(code, path, text, subject))


def _document_text(source: _WireSource) -> str | None:
    if source.type == "text":
        return source.data
    if source.type == "base64" and (
        source.media_type.startswith("text/") or source.media_type in ("application/json", "application/xml")
    ):
        try:
            return base64.b64decode(source.data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None


def _is_object(text: str) -> bool:
    try:
        value: JSON = msgspec.json.decode(text)
    except UNREADABLE:
        return False
    return isinstance(value, dict)
