"""Text to token ids and back, for every kind of tokenizer file."""
