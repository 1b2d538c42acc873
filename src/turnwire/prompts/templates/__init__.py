"""Chat templates: the sandbox they render in, the messages they are given, what probing learnt of them."""
