"""The request of the Responses API: its items, content parts and tool choice, decoded into a conversation."""
