"""Large request bodies, decoded in processes of their own.

Promise: whatever a body within the limits holds, the event loop is never busy with it for long.
"""
