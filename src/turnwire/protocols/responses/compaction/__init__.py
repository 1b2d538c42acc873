"""Compaction: what the model is asked for, and the answer that carries its summary."""
