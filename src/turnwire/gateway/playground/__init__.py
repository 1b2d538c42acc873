"""The console's playground: an agent for each browser tab, over a WebSocket."""
