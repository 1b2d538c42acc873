"""Wire JSON to conversation, events to wire JSON: one folder per API."""
