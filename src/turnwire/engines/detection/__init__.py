"""Which server answers at an address, and what it says of its models."""
