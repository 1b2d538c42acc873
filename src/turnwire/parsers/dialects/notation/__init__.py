"""Families that write calls in a notation of their own: Python, Gemma's braces.

Promise: each module defines `DIALECTS`.
"""
