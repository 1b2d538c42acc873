"""Models that SGLang loads from outside, for `turnwire conformance` against the whole server."""
