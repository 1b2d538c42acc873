"""What a captured turn is: its format, its redaction, and what is made of captures (samples, traces, bundles)."""
