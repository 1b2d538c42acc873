"""An engine that plays the turns of a capture, so that a client can run again without a model."""
