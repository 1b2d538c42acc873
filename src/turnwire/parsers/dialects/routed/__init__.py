"""Families whose message headers say what a text is.

Promise: each module defines `DIALECTS`.
"""
