"""Agent sessions over several gateway processes, some of which are killed."""
