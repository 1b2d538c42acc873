"""Model text to events: one incremental machine, one table per model family."""
