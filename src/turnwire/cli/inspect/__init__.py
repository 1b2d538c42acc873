"""Commands that look at turns: those of a running gateway, and those in a capture."""
