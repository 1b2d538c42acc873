"""The web page of a gateway: live turns, sessions, timelines, workers, usage, how to connect."""
