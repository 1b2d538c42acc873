"""The request of the Messages API: its messages, blocks, tools and context edits, decoded into a conversation."""
