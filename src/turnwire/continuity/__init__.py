"""Is turn N a token prefix of turn N+1? If not: where, which section, why, and what to do."""

from turnwire.continuity.renderings import header, sentence
from turnwire.continuity.sketch import Sketch, compared_with, decode_sketch, sketch_of
from turnwire.continuity.tracker import SessionTracker, session_key
from turnwire.continuity.verdict import CAUSES, Cause, Verdict, Words
from turnwire.shared_prefix import shared_prefix

__all__ = [
    "CAUSES",
    "Cause",
    "SessionTracker",
    "Sketch",
    "Verdict",
    "Words",
    "compared_with",
    "decode_sketch",
    "header",
    "sentence",
    "session_key",
    "shared_prefix",
    "sketch_of",
]
