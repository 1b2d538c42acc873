"""The gateway that is captured."""

from ..gateway.conftest import serve

__all__ = ["serve"]
