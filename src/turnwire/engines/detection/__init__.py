"""Which server answers at an address, and what it tells of its models."""
