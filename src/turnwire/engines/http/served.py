"""What `/v1/models` says of the models that an engine serves; unknown fields are passed over.

Promise: any list of models that has ids can be read.
"""

from __future__ import annotations

import msgspec

__all__ = ["Models", "ServedModel"]


class ServedModel(msgspec.Struct):
    """A model under the name it is served by, with its window where the engine reports it."""

    id: str
    max_model_len: int | None = None


class Models(msgspec.Struct):
    """All of them."""

    data: list[ServedModel]
