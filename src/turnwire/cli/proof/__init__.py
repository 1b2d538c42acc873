"""Commands that show what a server does: conformance, parity, benchmarks."""
