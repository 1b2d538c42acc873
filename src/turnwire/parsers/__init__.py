"""Model text to events: one incremental machine, one table per model family.

Promise: no I/O, nothing raised about model output, work that grows with the text.
"""

from turnwire.parsers.dialect import Dialect, Encoding, Reasoning, Sign, Signature, Start
from turnwire.parsers.lookup.detect import Detection, detect
from turnwire.parsers.lookup.failures import DialectFileError, UnknownDialect
from turnwire.parsers.lookup.plugins import load_dialect_file
from turnwire.parsers.lookup.registry import dialect_from_flag, dialect_names, dialects, resolve
from turnwire.parsers.machine import Parser
from turnwire.parsers.notes import NOTES
from turnwire.parsers.start import start_state
from turnwire.parsers.writing import ArgumentForm, CallForm

__all__ = [
    "NOTES",
    "ArgumentForm",
    "CallForm",
    "Detection",
    "Dialect",
    "DialectFileError",
    "Encoding",
    "Parser",
    "Reasoning",
    "Sign",
    "Signature",
    "Start",
    "UnknownDialect",
    "detect",
    "dialect_from_flag",
    "dialect_names",
    "dialects",
    "load_dialect_file",
    "resolve",
    "start_state",
]
