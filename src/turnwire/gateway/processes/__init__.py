"""Several gateway processes on one port: who starts them, and what they ask of each other."""
