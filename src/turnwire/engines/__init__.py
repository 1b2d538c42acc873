"""Prompt tokens to token stream: one file per engine, one interface above them."""
