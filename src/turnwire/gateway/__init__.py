"""The ASGI application: the only package that does I/O with clients."""
