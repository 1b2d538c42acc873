"""Servers that take conversations instead of tokens: Chat Completions and Responses upstreams."""
