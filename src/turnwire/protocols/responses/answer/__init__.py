"""The answers of the Responses API: the stream, its items while they grow, diagnostics, errors."""
