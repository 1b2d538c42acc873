"""Families that write calls as tags, around each argument or within each other.

Promise: each module defines `DIALECTS`.
"""
