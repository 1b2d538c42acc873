"""Encodings of models that come without a chat template; each renders as a template does."""

from turnwire.prompts.templates.encodings.deepseek import DeepSeekEncoding
from turnwire.prompts.templates.encodings.harmony import HarmonyEncoding

__all__ = ["DeepSeekEncoding", "HarmonyEncoding"]
