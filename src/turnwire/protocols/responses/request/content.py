"""Content parts of Responses items, as blocks.

Promise: every part becomes a block; a part that no model here can be shown stays as an opaque block with its JSON text,
and is noted.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.contents import RESPONSE_PART, content_notes
from turnwire.protocols.fields.decoded import PartNote
from turnwire.turns import ImageBlock, OpaqueBlock, TextBlock

__all__ = ["Part", "opaque", "parts", "plain_text"]

Part: TypeAlias = TextBlock | ImageBlock | OpaqueBlock

TEXT_FIELDS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
"""Which field of a textual part holds its text."""

_IMAGES = frozenset({"input_image", "computer_screenshot"})


def parts(content: Any, path: str, notes: list[PartNote]) -> tuple[Part, ...]:
    """The blocks of a `content` or `output` value: a string, or a list of parts."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextBlock(text=content),)
    if not isinstance(content, list):
        raise invalid(path, "must be a string or a list of content parts")
    return tuple([_part(value, f"{path}[{index}]", notes) for index, value in enumerate(content)])


def plain_text(content: Any, path: str) -> str:
    """The text of a list of textual parts, joined as paragraphs; other parts do not count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(path, "must be a list of parts")
    return "\n\n".join(v["text"] for v in content if isinstance(v, dict) and isinstance(v.get("text"), str))


def opaque(value: Any, wire_type: str) -> OpaqueBlock:
    """A carrier for a value that we cannot read but must not lose."""
    return OpaqueBlock(wire_type=wire_type, payload=msgspec.json.encode(value).decode())


def _part(value: Any, path: str, notes: list[PartNote]) -> Part:
    if isinstance(value, str):
        return TextBlock(text=value)
    if not isinstance(value, dict):
        raise invalid(path, "must be a content part object")
    kind = value.get("type")
    if not isinstance(kind, str):
        raise invalid(f"{path}.type", "a content part needs a type such as 'input_text'")
    field = TEXT_FIELDS.get(kind)
    if field is not None or kind in _IMAGES:
        notes += content_notes(RESPONSE_PART, value, path)
    if field is not None:
        text = value.get(field)
        if not isinstance(text, str):
            raise invalid(f"{path}.{field}", "must be a string")
        return TextBlock(text=text)
    if kind in _IMAGES and (image := _image(value, path)) is not None:
        return image
    shown = kind[:64]
    notes.append(PartNote("content.opaque", path, f"a '{shown}' part cannot be shown to the model", shown))
    return opaque(value, kind)


def _image(value: dict[str, Any], path: str) -> ImageBlock | None:
    url = value.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    detail = value.get("detail")
    if not isinstance(detail, str):
        detail = None
    if not isinstance(url, str) or not url:
        return None
    if not url.startswith("data:"):
        return ImageBlock(url=url, detail=detail)
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        raise invalid(f"{path}.image_url", "a data URL must be base64: data:image/png;base64,...")
    return ImageBlock(media_type=head.removesuffix(";base64"), data=data, detail=detail)
