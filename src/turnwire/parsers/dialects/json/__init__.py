"""Families whose calls carry JSON arguments, in an object with the name or after it.

Promise: each module defines `DIALECTS`.
"""
