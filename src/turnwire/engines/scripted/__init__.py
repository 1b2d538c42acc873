"""An engine that plays model output from a file, for tests of harnesses and of the gateway."""
