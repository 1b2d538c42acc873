"""A prompt made of exact earlier turns and of what the template writes between them."""
