"""Hosted tools that the gateway runs: MCP servers of the operator's, called in the middle of an answer."""
