"""A real vLLM server on this machine, started for tests and benchmarks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from .install import Installation, prepare

BLOCK = 32
WINDOW = 8192
START_SECONDS = 600


class VLLMServer:
    """One server process on a fixed port of its own; `start` returns when it takes work."""

    def __init__(self, log: Path, *options: str, installation: Installation | None = None) -> None:
        self.installation = installation or prepare()
        self._log = log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            str(self.installation.python), "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(self.installation.model), "--served-model-name", "tiny", "--load-format", "dummy",
            "--enforce-eager", "--max-model-len", str(WINDOW), "--block-size", str(BLOCK),
            "--host", "127.0.0.1", "--port", str(self.port), *self._options,
        ]  # fmt: skip
        environment = os.environ | {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # Two threads on two cores that others use too are slower than one.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            if self._process.poll() is not None:
                raise RuntimeError(f"vLLM did not start: {self._log.read_text()[-3000:]}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"vLLM did not start in {START_SECONDS} s: {self._log.read_text()[-3000:]}")
            time.sleep(0.5)

    def kill(self) -> None:
        """End it at once, workers included, as a crash would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry `labels`."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"{name}{{", f"{name} ")) and all(label in line for label in wanted)
        )

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> VLLMServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
