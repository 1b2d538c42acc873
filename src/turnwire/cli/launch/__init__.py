"""Running real clients against a gateway, and the catalog file that Codex reads."""
