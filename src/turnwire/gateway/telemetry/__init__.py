"""Views of finished turns: journal, records, metrics, traces."""
