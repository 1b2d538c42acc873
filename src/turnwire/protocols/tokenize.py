"""The tokenize and detokenize requests: a text or a whole conversation in, token ids out; and back.

Promise: a conversation is rendered and counted as `/v1/chat/completions` would read it; a body that gives nothing to
tokenize is refused, never counted as nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnwire.protocols.chat.messages import read_messages
from turnwire.protocols.chat.tools import read_tools
from turnwire.protocols.fields.body import invalid
from turnwire.protocols.fields.reader import Fields
from turnwire.protocols.fields.table import DETOKENIZE, TOKENIZE
from turnwire.protocols.limits import Limits
from turnwire.turns import Conversation, Note

__all__ = ["Detokenize", "Tokenize", "decode", "decode_ids", "encode_ids"]

_TEXTS = ("prompt", "text", "content")


class Tokenize(msgspec.Struct, frozen=True, kw_only=True):
    """What to tokenize: `text` as it is, or `conversation` as its next turn would read it. `strings` asks for the text
    of each token as well."""

    model: str = ""
    text: str = ""
    conversation: Conversation | None = None
    strings: bool = False
    notes: tuple[Note, ...] = ()


class Detokenize(msgspec.Struct, frozen=True, kw_only=True):
    """Token ids to spell."""

    model: str = ""
    tokens: tuple[int, ...] = ()


def decode(body: bytes, *, limits: Limits | None = None) -> Tokenize:
    """Decode `POST /v1/tokenize`, in the forms of vLLM and llama.cpp."""
    fields = Fields(body, TOKENIZE, limits or Limits())
    model = fields.model()
    given = [name for name in (*_TEXTS, "messages") if fields.has(name)]
    if len(given) != 1:
        wanted = "`prompt` (a text) or `messages` (a conversation)"
        raise invalid(given[1] if given else "", f"give either {wanted}" if given else f"{wanted} is needed")
    strings = fields.flag("return_token_strs") or fields.flag("with_pieces")
    if given[0] != "messages":
        for name in ("tools", "functions", "chat_template_kwargs"):
            if fields.has(name):
                raise invalid(name, "goes with `messages`, not with a text")
        return Tokenize(model=model, text=fields.text(given[0]) or "", strings=strings, notes=fields.finish())
    conversation = Conversation(
        model=model,
        messages=read_messages(fields, None)[0],
        tools=read_tools(fields, None),
        template_args=fields.object("chat_template_kwargs") or {},
    )
    return Tokenize(model=model, conversation=conversation, strings=strings, notes=fields.finish())


def decode_ids(body: bytes, *, limits: Limits | None = None) -> Detokenize:
    """Decode `POST /v1/detokenize`."""
    fields = Fields(body, DETOKENIZE, limits or Limits())
    model, tokens = fields.model(), fields.value("tokens")
    if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
        raise invalid("tokens", "must be a list of token ids")
    return Detokenize(model=model, tokens=tuple(tokens))


def encode_ids(ids: Sequence[int], strings: Sequence[str] | None, window: int) -> bytes:
    """The answer to a tokenize request."""
    answer: dict[str, object] = {"tokens": list(ids), "count": len(ids), "max_model_len": window}
    if strings is not None:
        answer["token_strs"] = list(strings)
    return msgspec.json.encode(answer)
