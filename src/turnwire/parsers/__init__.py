"""Model text to events: one incremental machine, one table per model family."""

from turnwire.parsers.detect import Detection, detect
from turnwire.parsers.dialect import Dialect, Reasoning, Sign, Start
from turnwire.parsers.machine import Parser
from turnwire.parsers.notes import NOTES
from turnwire.parsers.registry import UnknownDialect, dialect_names, dialects, resolve
from turnwire.parsers.start import start_state

__all__ = [
    "NOTES",
    "Detection",
    "Dialect",
    "Parser",
    "Reasoning",
    "Sign",
    "Start",
    "UnknownDialect",
    "detect",
    "dialect_names",
    "dialects",
    "resolve",
    "start_state",
]
