"""What a chat template writes where a message holds an image.

Promise: the text is found by rendering, and is None where the template shows nothing of an image.
"""

from __future__ import annotations

from turnwire.prompts.templates.probing.samples import TrialRenderer, between, mark
from turnwire.prompts.templates.template import Renderer

__all__ = ["image_mark"]


def image_mark(template: Renderer) -> str | None:
    """The text that stands for an image in the template's prompts."""
    before, behind = mark("before"), mark("after")
    parts = [{"type": "text", "text": before}, {"type": "image"}, {"type": "text", "text": behind}]
    shown = TrialRenderer(template).show([{"role": "user", "content": parts}])
    found = between(shown, before, behind)
    return found if found and found.strip() and "'type'" not in found else None
