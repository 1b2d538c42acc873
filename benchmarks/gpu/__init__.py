"""An engine for a machine with a GPU: random weights in the shape of an 8B model, a paged prefix cache, vLLM's wire."""
