"""Engines reached over HTTP: the streaming connection, server-sent events, the completions wire."""
