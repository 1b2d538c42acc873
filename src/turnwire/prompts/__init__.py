"""Conversation to prompt tokens: templates, tokenizers, stability, replay, seals."""
