"""The ASGI application: the only room that does I/O with clients."""
