"""What one request may hold beyond the shape of its JSON: schemas, patterns, grammars, images, stop strings.

Promise: checked once per request after decoding and before any prompt is built, the same for every API; a refusal names
the field, the limit and the setting. Clean requests pay a few scans of their body.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from turnwire.gateway.door.image_urls import forbidden_reference
from turnwire.gateway.settings import Settings
from turnwire.message_facts import message_facts
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.limits import Limits
from turnwire.tool_sets import tool_set
from turnwire.turns import Conversation

__all__ = ["RequestLimits", "request_limits"]

_LONGER = 6
"""JSON takes at most so many times the bytes of msgpack: a control character is six of them."""

_PATTERN_NAMES = tuple(msgspec.msgpack.encode(name) for name in ("pattern", "patternProperties"))


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`wire` is for the decoders; the rest is checked here. `urls` lets references to images through to an engine that
    would fetch them."""

    wire: Limits
    schema_bytes: int
    pattern_chars: int
    grammar_chars: int
    image_bytes: int
    images: int
    stop_chars: int
    urls: bool

    def check(self, conversation: Conversation, size: int, *, fetches: bool) -> None:
        """Raise TurnFailure for what is over a limit. `size` is the body's, `fetches` whether the engine would go and
        get what a reference points to."""
        for number, stop in enumerate(conversation.sampling.stop):
            if len(stop) > self.stop_chars:
                raise invalid(f"stop.{number}", f"longer than {self.stop_chars} characters (max_stop_chars)")
        for number, tool in enumerate(conversation.tools):
            if tool.grammar is not None and len(tool.grammar) > self.grammar_chars:
                raise invalid(f"tools.{number}", f"a grammar of over {self.grammar_chars} characters (max_grammar)")
        if size > min(self.schema_bytes, self.pattern_chars):
            self._check_schemas(conversation)
        self._check_images(conversation, fetches)

    def _check_schemas(self, conversation: Conversation) -> None:
        packed = tool_set(conversation.tools).packed
        if _LONGER * len(packed) > self.schema_bytes or any(name in packed for name in _PATTERN_NAMES):
            for number, tool in enumerate(conversation.tools):
                self._check_schema(tool.schema, f"tools.{number}")
        if conversation.format is not None and conversation.format.schema:
            self._check_schema(conversation.format.schema, "the output format")

    def _check_schema(self, schema: dict[str, Any], path: str) -> None:
        data = msgspec.json.encode(schema)
        if len(data) > self.schema_bytes:
            raise invalid(path, f"a schema of {len(data)} bytes; the limit is {self.schema_bytes} (max_schema)")
        if b'"pattern' in data:
            for pattern in _patterns(schema):
                if len(pattern) > self.pattern_chars:
                    raise invalid(path, f"a pattern of over {self.pattern_chars} characters (max_pattern)")

    def _check_images(self, conversation: Conversation, fetches: bool) -> None:
        for count, image in enumerate(message_facts(conversation.messages).images, 1):
            if count > self.images:
                raise invalid("messages", f"more than {self.images} images (max_images)")
            # Base64 has four characters for three bytes.
            if len(image.data) > self.image_bytes // 3 * 4 + 4:
                raise invalid("messages", f"an image of more than {self.image_bytes} bytes (max_image)")
            if image.url and fetches:
                problem = forbidden_reference(image.url, allowed=self.urls)
                if problem is not None:
                    raise invalid("messages", problem)


def _patterns(schema: Any) -> Iterator[str]:
    """Every regular expression in a schema, with a stack of our own: the depth is the client's."""
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                yield value["pattern"]
            if isinstance(value.get("patternProperties"), dict):
                yield from value["patternProperties"]
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def request_limits(settings: Settings) -> RequestLimits:
    """The limits that an operator set."""
    return RequestLimits(
        wire=Limits(
            body_bytes=settings.max_body,
            messages=settings.max_messages,
            tools=settings.max_tools,
            stop_sequences=settings.max_stops,
            depth=settings.max_depth,
            choices=settings.max_choices,
        ),
        schema_bytes=settings.max_schema,
        pattern_chars=settings.max_pattern,
        grammar_chars=settings.max_grammar,
        image_bytes=settings.max_image,
        images=settings.max_images,
        stop_chars=settings.max_stop_chars,
        urls=settings.allow_urls,
    )
