"""Each gateway that can be measured: the wire it stands behind, the APIs it has, and how it is started.

Promise: every one of them serves the same model folder and is answered from the same playbook, one token at a time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engines.playbook import Counter, Counters
from benchmarks.load.requests import APIS, MODEL, Api
from benchmarks.measure.steps import Steps
from benchmarks.measure.versions import commit
from benchmarks.peers import cache
from benchmarks.peers.processes import Processes, free_port, free_ports, listens, serves

Command = list[str | Path]
ENGINES = cache.ROOT / "benchmarks" / "engines"
_HELLO = "/api/hello"


@dataclass
class Gateway:
    """A gateway that runs behind a scripted engine."""

    name: str
    wire: str
    version: str
    apis: tuple[Api, ...]
    port: int
    pid: int
    tokens: Counter | Counters
    processes: Processes = field(repr=False)
    small: bool = False
    """Whether one process of it does not carry 64 paced streams."""
    steps: Steps | None = None
    """The clock in its event loop, where it has one."""
    probe: str = "/health"
    """A path that it answers without asking anybody."""


@dataclass(frozen=True)
class Stage:
    """Where gateways are started: the playbook, and a folder for logs and counters. `watched`: Turnwire has a clock in
    its event loop, which costs some CPU time."""

    playbook: Path
    scratch: Path
    watched: bool = False
    started: list[Processes] = field(default_factory=list)

    def processes(self) -> Processes:
        """The programs of one more gateway."""
        self.started.append(Processes(self.scratch))
        return self.started[-1]

    def stop(self) -> None:
        """End everything that was started here."""
        for processes in self.started:
            processes.stop()

    def steps(self, name: str) -> Steps | None:
        """The clock of a gateway."""
        return Steps(self.steps_file(name)) if self.watched else None

    def steps_file(self, name: str) -> Path:
        return self.scratch / f"{name}.steps"

    def counter(self, name: str) -> tuple[Path, Counter]:
        file = self.scratch / f"{name}.count"
        return file, Counter(file)


def turnwire(
    name: str, stage: Stage, source: Path = cache.ROOT, flags: tuple[str, ...] = (), engines: int = 1
) -> Gateway:
    """Turnwire in front of vLLM's completions wire, which is spoken by as many processes on one port as `engines`."""
    engine, port, processes = free_port(), free_port(), stage.processes()
    counters = completions_engine(name, stage, processes, engine, engines)
    pid = _serve(name, stage, processes, port, source, f"vllm:http://127.0.0.1:{engine}", flags)
    return Gateway(
        name, "HTTP", commit(source), APIS, port, pid, counters, processes, steps=stage.steps(name), probe=_HELLO
    )


def completions_engine(name: str, stage: Stage, processes: Processes, port: int, count: int = 1) -> Counters:
    """Scripted engines that share a port, and what they have said in all."""
    counters, program = [], cache.program(ENGINES / "completions.c")
    for number in range(count):
        file, counter = stage.counter(f"{name}-{number}")
        counters.append(counter)
        processes.start(f"{name}-engine-{number}", [program, str(port), stage.playbook, file])
    processes.wait(listens(port))
    return Counters(counters)


def turnwire_core(name: str, stage: Stage, source: Path = cache.ROOT, flags: tuple[str, ...] = ()) -> Gateway:
    """Turnwire in front of vLLM's engine-core wire."""
    # The gateway binds the two ports after the handshake's for requests and outputs.
    handshake, port, processes = free_ports(3), free_port(), stage.processes()
    counter = scripted_core(name, stage, processes, handshake)
    pid = _serve(name, stage, processes, port, source, f"vllm-core:tcp://127.0.0.1:{handshake}", flags)
    wire, steps = "engine core (ZMQ)", stage.steps(name)
    return Gateway(name, wire, commit(source), APIS, port, pid, counter, processes, steps=steps, probe=_HELLO)


def vllm_rust(name: str, stage: Stage) -> Gateway:
    """vLLM's Rust frontend; it has no Messages and no Responses."""
    handshake, port, processes = free_port(), free_port(), stage.processes()
    command: Command = [cache.vllm_rust(), "serve", cache.model(), "--served-model-name", MODEL, "--host", "127.0.0.1"]
    command += ["--port", str(port), "--data-parallel-size", "1", "--data-parallel-size-local", "0"]
    command += ["--handshake-port", str(handshake), "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    pid = processes.start(name, command)
    counter = scripted_core(name, stage, processes, handshake)
    processes.wait(serves(port, MODEL))
    return Gateway(name, "engine core (ZMQ)", cache.VLLM, ("chat",), port, pid, counter, processes)


def dynamo(name: str, stage: Stage) -> Gateway:
    """Dynamo's frontend with a worker on its TCP plane, without etcd and NATS."""
    port, processes = free_port(), stage.processes()
    file, counter = stage.counter(name)
    found = stage.scratch / f"{name}-discovery"
    found.mkdir(exist_ok=True)
    environment = {
        "DYN_DISCOVERY_BACKEND": "file",
        "DYN_FILE_KV": str(found),
        "DYN_REQUEST_PLANE": "tcp",
        "DYN_EVENT_PLANE": "zmq",
        "DYN_LOG": "error",
        "PYTHONPATH": str(cache.ROOT),
    }
    run: Command = [cache.python("dynamo"), "-m"]
    command: Command = [*run, "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port)]
    command += ["--discovery-backend", "file", "--request-plane", "tcp"]
    pid = processes.start(name, [*command, "--enable-anthropic-api", "--strip-anthropic-preamble"], environment)
    worker = [*run, "benchmarks.engines.dynamo_worker", cache.model(), MODEL, stage.playbook, file]
    processes.start(f"{name}-engine", worker, environment)
    processes.wait(serves(port, MODEL))
    return Gateway(name, "TCP worker", cache.DYNAMO, APIS, port, pid, counter, processes)


def smg(name: str, stage: Stage) -> Gateway:
    """smg in front of vLLM's gRPC wire, with the newer and faster of its parsers."""
    engine, port, processes = free_port(), free_port(), stage.processes()
    file, counter = stage.counter(name)
    module: Command = [cache.python("smg"), "-m", "benchmarks.engines.grpc_worker"]
    worker = [*module, str(engine), cache.model(), MODEL, stage.playbook, file]
    processes.start(f"{name}-engine", worker, {"PYTHONPATH": str(cache.ROOT)})
    processes.wait(listens(engine))
    command: Command = [cache.python("smg").parent / "smg", "launch", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    command += ["--worker-urls", f"grpc://127.0.0.1:{engine}", "--policy", "round_robin", "--log-level", "error"]
    command += ["--history-backend", "memory", "--model-path", str(cache.model()), "--parser", "symphony"]
    pid = processes.start(name, [*command, "--tool-call-parser", "qwen3", "--reasoning-parser", "qwen3"])
    processes.wait(serves(port, MODEL))
    return Gateway(name, "gRPC", cache.SMG, APIS, port, pid, counter, processes)


def litellm(name: str, stage: Stage) -> Gateway:
    """LiteLLM's proxy in front of vLLM's Rust frontend. Responses go on to a route that is absent there."""
    upstream = vllm_rust(f"{name}-vllm", stage)
    port, pid, processes = litellm_proxy(name, stage, upstream.port)
    return Gateway(
        name, "HTTP, chat", cache.LITELLM, ("chat", "messages"), port, pid, upstream.tokens, processes, small=True
    )


def litellm_proxy(name: str, stage: Stage, upstream: int) -> tuple[int, int, Processes]:
    """LiteLLM's proxy in front of a vLLM server at a port, as `hosted_vllm`: its port and its process."""
    port, processes = free_port(), stage.processes()
    settings = stage.scratch / f"{name}.yaml"
    settings.write_text(
        f"""model_list:
  - model_name: {MODEL}
    litellm_params:
      model: hosted_vllm/{MODEL}
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: none
"""
    )
    command: Command = [cache.python("litellm").parent / "litellm", "--config", settings, "--host", "127.0.0.1"]
    # It listens on this machine only; without a key is LiteLLM's own way for local development.
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    pid = processes.start(name, [*command, "--port", str(port), "--num_workers", "1"], environment)
    processes.wait(serves(port, MODEL))
    return port, pid, processes


PEERS: dict[str, Callable[[str, Stage], Gateway]] = {"vllm-rust": vllm_rust, "dynamo": dynamo, "smg": smg}
# Measured only where `--gateways` names it: one process does not carry the load that the others carry.
ON_REQUEST: dict[str, Callable[[str, Stage], Gateway]] = {"litellm": litellm}


def scripted_core(name: str, stage: Stage, processes: Processes, handshake: int) -> Counter:
    """The scripted engine core that attaches to a frontend."""
    file, counter = stage.counter(name)
    command: Command = [cache.python("core"), "-m", "benchmarks.engines.core", str(handshake), stage.playbook, file]
    processes.start(f"{name}-engine", command, {"PYTHONPATH": str(cache.ROOT)})
    return counter


def _serve(
    name: str, stage: Stage, processes: Processes, port: int, source: Path, engine: str, flags: tuple[str, ...]
) -> int:
    model = cache.model()
    home = stage.scratch / f"{name}-home"
    home.mkdir(exist_ok=True)
    run = ["benchmarks.measure.steps", str(stage.steps_file(name))] if stage.watched else ["turnwire.cli.main"]
    command = [sys.executable, "-m", *run, "serve", "--port", str(port), "--engine", engine]
    command += ["--alias", MODEL, "--tokenizer", str(model / "tokenizer.json")]
    command += ["--template", str(model / "template.jinja"), "--dialect", "hermes", "--log-level", "warning", *flags]
    path = os.pathsep.join([str(source / "src"), *([str(cache.ROOT)] if stage.watched else [])])
    environment = {"PYTHONPATH": path, "HOME": str(home), "TURNWIRE_CONCURRENCY": "2048"}
    pid = processes.start(name, command, environment)
    processes.wait(serves(port, MODEL))
    return pid
