"""vLLM's engine core, spoken to over its own wire: ZMQ and msgpack, without an HTTP server in between."""
