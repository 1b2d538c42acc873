"""Real, pinned clients against a real gateway on a scripted engine (`make test-clients`)."""
