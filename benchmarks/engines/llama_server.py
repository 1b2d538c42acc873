"""llama.cpp's server, as the package xllamacpp ships it, in a process of its own.

python benchmarks/engines/llama_server.py MODEL.gguf PORT
"""

from __future__ import annotations

import signal
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"qwen3"}
params.port = int(sys.argv[2])
params.hostnames = ["127.0.0.1"]
params.use_jinja = True
params.endpoint_metrics = True
params.ui = False
params.verbosity = -1
params.n_ctx = 8192
params.n_parallel = 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
signal.pause()
