"""Small servers that speak the wire formats of vLLM, SGLang, TensorRT-LLM and llama.cpp, playing one script line.

They answer what the real servers' sources and documentation say: field by field, with the end token among the ids, the
text cut as those engines cut it, and their own words for each failure.
"""

from .llamacpp import FakeLlamaCpp
from .server import FakeServer
from .sglang import FakeSGLang
from .trtllm import FakeTRTLLM
from .upstream import FakeChat, FakeResponses
from .vllm import FakeVLLM

__all__ = ["FakeChat", "FakeLlamaCpp", "FakeResponses", "FakeSGLang", "FakeServer", "FakeTRTLLM", "FakeVLLM"]
