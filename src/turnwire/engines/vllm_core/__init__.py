"""vLLM's engine core, spoken to over its own wire: ZMTP and msgpack, without an HTTP server in between."""
