"""From settings to a running gateway: models, tokenizers, seal keys, diagnosis."""
