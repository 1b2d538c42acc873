"""Servers that fail in every way that servers do, and clients that check every character of what they get."""
