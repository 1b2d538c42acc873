"""Guided decoding: what a request demands of the output, as a grammar an engine can follow."""
