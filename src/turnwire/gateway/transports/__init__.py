"""The ways a request comes in and its answer goes out: HTTP, WebSocket, background."""
