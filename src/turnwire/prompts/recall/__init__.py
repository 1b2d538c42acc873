"""The exact output of earlier turns: sealed in what the client returns, or kept in a store."""
