"""Encodings of models that come without a chat template; each renders as a template does."""

from turnwire.prompts.encodings.deepseek import DeepSeekEncoding
from turnwire.prompts.encodings.harmony import HarmonyEncoding

__all__ = ["DeepSeekEncoding", "HarmonyEncoding"]
