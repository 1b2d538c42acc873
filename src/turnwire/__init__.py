"""Turnwire: what the model said on turn N is exactly what it reads on turn N+1."""

__version__ = "0.2.0"
