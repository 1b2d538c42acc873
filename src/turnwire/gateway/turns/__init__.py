"""A turn's way through the gateway, from an admitted request to its outcome."""
