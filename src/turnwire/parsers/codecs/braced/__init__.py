"""Calls in Gemma's notation (`call:name{key:value}`): the table, its reader, the object, and how a string ends."""

from turnwire.parsers.codecs.braced.reader import Braced

__all__ = ["Braced"]
