"""The model list in the Messages wire's shape.

Promise: every row appears under its own id and, beside it, under the ids by which clients that only look for Claude
names find it; pages are cut by `limit`, `after_id` and `before_id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from turnwire.protocols.fields.body import invalid
from turnwire.protocols.models import ModelRow, claude_aliases

__all__ = ["model_object", "models_page"]

_MOST = 1000
_encode = msgspec.json.Encoder().encode


def model_object(row: ModelRow, model_id: str | None = None) -> bytes:
    """One model; `model_id` is the alias it was asked for under."""
    return _encode(_object(row, model_id or row.id))


def models_page(
    rows: Sequence[ModelRow],
    *,
    limit: int | None = None,
    after_id: str | None = None,
    before_id: str | None = None,
    aliases: bool = True,
) -> bytes:
    """A page of the list. An unknown cursor gives an empty page. `aliases` lists each model under its further ids too,
    for clients that only show names with `claude` or `anthropic`; otherwise each is listed once."""
    size = 20 if limit is None else limit
    if not 1 <= size <= _MOST:
        raise invalid("limit", f"must be between 1 and {_MOST}")
    listed = [
        _object(row, model_id)
        for row in rows
        for model_id in (dict.fromkeys((row.id, *row.aliases, *claude_aliases(row.id))) if aliases else (row.id,))
    ]
    ids = [item["id"] for item in listed]
    if before_id is not None:
        end = ids.index(before_id) if before_id in ids else 0
        start = max(0, end - size)
        more = start > 0
    else:
        start = 0
        if after_id is not None:
            start = ids.index(after_id) + 1 if after_id in ids else len(ids)
        end = min(len(ids), start + size)
        more = end < len(ids)
    page = listed[start:end]
    return _encode(
        {
            "data": page,
            "has_more": more,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
        }
    )


def _object(row: ModelRow, model_id: str) -> dict[str, object]:
    return {
        "type": "model",
        "id": model_id,
        "display_name": row.label,
        "description": row.description,
        "created_at": datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": row.window,
        "max_tokens": row.max_output,
    }
