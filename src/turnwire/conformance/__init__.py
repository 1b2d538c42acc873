"""How a server behaves under agent harnesses: rules as a table, a word for each, and the evidence for it."""
