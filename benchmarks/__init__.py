"""Measurements of the gateway, alone and beside its peers: `python -m benchmarks COMMAND`, see the README here."""
