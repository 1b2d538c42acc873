"""The rules of the table, a small judge for each."""
