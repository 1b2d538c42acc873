"""Sessions that a harness wrote down itself, as captured turns."""
