"""The servers that `python -m benchmarks conformance` judges: how each is started with the flags its makers recommend.

Promise: every one that takes an engine from outside stands in front of the same scripted turns; what cannot be started
is told with the reason.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load.requests import MODEL
from benchmarks.peers import cache, gateways
from benchmarks.peers.gateways import Command, Stage
from benchmarks.peers.processes import free_port, serves

SLOW = 400.0
# What SGLang needs to run without a GPU; nothing of it changes what a client sees.
SGLANG_ON_A_CPU = (
    "--load-format dummy --attention-backend torch_native --sampling-backend pytorch --disable-cuda-graph "
    "--disable-overlap-schedule --mem-fraction-static 0.5 --max-total-tokens 131072 --max-running-requests 8 "
    "--context-length 131072 --dtype bfloat16 --skip-server-warmup"
)


# A client's first request is longer than this model's window, and it calls no tools.
NO_CLIENTS = dict.fromkeys(("clients.claude", "clients.codex"), "the small model behind it cannot serve a client")
# What an engine does and these stand-ins do not: refuse a prompt beyond the window.
ENGINES_PART = {"errors.overflow": "refusing such a prompt is the engine's part, which the stand-in does not play"}


@dataclass(frozen=True)
class Served:
    """A server that runs. `folder` is the stand-in's, None where a real model answers."""

    name: str
    version: str
    url: str
    flags: str
    engine: str
    folder: Path | None
    model: str = MODEL
    excused: Mapping[str, str] = field(default_factory=dict)
    most: int = 2048


def turnwire(stage: Stage) -> Served:
    made = gateways.turnwire_core("turnwire", stage)
    return _behind(made, stage, "Turnwire", "--engine vllm-core:… --dialect hermes", "scripted vLLM engine core")


def vllm_rust(stage: Stage) -> Served:
    made = gateways.vllm_rust("vllm-rust", stage)
    flags = "--tool-call-parser hermes --reasoning-parser qwen3"
    return _behind(made, stage, "vLLM (Rust frontend)", flags, "scripted vLLM engine core")


def dynamo(stage: Stage) -> Served:
    made = gateways.dynamo("dynamo", stage)
    flags = "--enable-anthropic-api --strip-anthropic-preamble; tool parser hermes, reasoning parser qwen3"
    return _behind(made, stage, "Dynamo", flags, "scripted worker on its TCP plane", ENGINES_PART)


def smg(stage: Stage) -> Served:
    made = gateways.smg("smg", stage)
    flags = "--parser symphony --tool-call-parser qwen3 --reasoning-parser qwen3 --history-backend memory"
    return _behind(made, stage, "smg", flags, "scripted vLLM gRPC server", ENGINES_PART)


def litellm(stage: Stage) -> Served:
    upstream = vllm(stage)
    port, _, _ = gateways.litellm_proxy("litellm", stage, int(upstream.url.rpartition(":")[2]))
    engine = "vLLM's Python server as in its own column"
    return Served("LiteLLM", cache.LITELLM, _url(port), "model: hosted_vllm/…", engine, stage.playbook)


def vllm(stage: Stage) -> Served:
    """vLLM's Python server in front of the scripted core."""
    installation = cache.real_engines.prepare("vllm")
    handshake, port, processes = free_port(), free_port(), stage.processes()
    launcher = stage.scratch / "vllm_launcher.py"
    launcher.write_text(cache.real_engines.VLLM_LAUNCHER)
    flags = "--enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3"
    command: Command = [installation.python, launcher, "serve", cache.model(), "--served-model-name", MODEL]
    command += ["--host", "127.0.0.1", "--port", str(port), "--data-parallel-size", "1", "--data-parallel-size-local"]
    command += ["0", "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(handshake), *flags.split()]
    environment = cache.real_engines.VLLM_ENVIRONMENT | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    # Stored responses are off in vLLM until asked for.
    processes.start("vllm", command, environment | {"VLLM_ENABLE_RESPONSES_API_STORE": "1"})
    gateways.scripted_core("vllm", stage, processes, handshake)
    processes.wait(serves(port, MODEL), SLOW)
    return Served("vLLM", cache.VLLM, _url(port), flags, "scripted vLLM engine core", stage.playbook)


def sglang(stage: Stage) -> Served:
    """The whole of SGLang on a CPU, with a model whose tokens are scripted."""
    installation = cache.real_engines.prepare("sglang")
    port, processes = free_port(), stage.processes()
    model = stage.scratch / "sglang-model"
    shutil.copytree(installation.model, model)
    config = json.loads((model / "config.json").read_text())
    # The window is as long as the other servers': Claude Code asks for 32,000 tokens beside its prompt.
    longer = {"architectures": ["ScriptedForCausalLM"], "max_position_embeddings": 262144}
    (model / "config.json").write_text(json.dumps(config | longer))
    flags = "--tool-call-parser qwen25 --reasoning-parser qwen3 --enable-cache-report --enable-response-store"
    command: Command = [installation.python, "-m", "sglang.launch_server", "--model-path", model, "--device", "cpu"]
    command += SGLANG_ON_A_CPU.split()
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port), *flags.split()]
    environment = {
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_EXTERNAL_MODEL_PACKAGE": "benchmarks.engines.sglang_models",
        "PLAYBOOK": str(stage.playbook),
        "PYTHONPATH": str(cache.ROOT),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    processes.start("sglang", command, environment)
    processes.wait(serves(port, MODEL), SLOW)
    engine = "SGLang's own scheduler and cache, scripted model"
    return Served("SGLang", cache.real_engines.SGLANG, _url(port), flags, engine, stage.playbook)


def llama_server(stage: Stage) -> Served:
    """llama.cpp's server as the package xllamacpp ships it, with the small embedded model."""
    from turnwire.engines.embedded.downloads import resolve_model

    port, processes = free_port(), stage.processes()
    program = cache.ROOT / "benchmarks" / "engines" / "llama_server.py"
    file = resolve_model(None)
    processes.start("llama-server", [sys.executable, program, str(file), str(port)], {"PYTHONPATH": str(cache.ROOT)})
    processes.wait(serves(port, MODEL))
    import xllamacpp

    flags = "--jinja --metrics -c 8192 -np 1"
    return Served(
        "llama-server",
        xllamacpp.__version__,
        _url(port),
        flags,
        f"llama.cpp, {Path(file).stem}",
        None,
        excused=NO_CLIENTS,
        most=96,
    )


SERVERS: dict[str, Callable[[Stage], Served]] = {
    "turnwire": turnwire,
    "dynamo": dynamo,
    "vllm": vllm,
    "vllm-rust": vllm_rust,
    "sglang": sglang,
    "smg": smg,
    "litellm": litellm,
    "llama-server": llama_server,
}


# How the page calls those that the command names otherwise.
TITLES = {
    "turnwire": "Turnwire",
    "dynamo": "Dynamo",
    "vllm": "vLLM",
    "vllm-rust": "vLLM (Rust frontend)",
    "sglang": "SGLang",
    "smg": "smg",
    "litellm": "LiteLLM",
    "llama-server": "llama-server",
}


def _behind(
    made: gateways.Gateway,
    stage: Stage,
    name: str,
    flags: str,
    engine: str,
    excused: Mapping[str, str] | None = None,
) -> Served:
    return Served(name, made.version, _url(made.port), flags, engine, stage.playbook, excused=excused or {})


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
