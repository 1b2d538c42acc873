"""Real clients on real templates: what the model said on one turn against what it reads on the next."""
