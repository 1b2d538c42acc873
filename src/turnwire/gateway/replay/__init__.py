"""A capture run again through decode, prompt, parse and encode, and compared with what it was."""
