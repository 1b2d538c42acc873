"""Installs the peers, the model folder and the C programs in a cache folder outside the clone.

Promise: pinned versions, safe to run twice, nothing written into the clone. The folder is $BENCH_CACHE, or
`turnwire/benchmarks` in the user's cache folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import engines as real_engines  # type: ignore[import-not-found]  # noqa: E402

VLLM, DYNAMO, SMG, SMG_WIRE, LITELLM = "0.32.0", "1.6.1", "1.13.0", "0.4.28", "1.106.2"
# What is installed with pip, in this order; Dynamo's own list of dependencies asks for one that is on no registry.
_PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "dynamo": (
        ("--no-deps", f"ai-dynamo=={DYNAMO}"),
        (f"ai-dynamo-runtime=={DYNAMO}", "kubernetes<33", "prometheus-client", "redis", "transformers"),
        ("aiohttp", "msgspec", "pydantic", "pyzmq", "tqdm", "uvloop", "zstandard"),
    ),
    "smg": ((f"smg=={SMG}", f"smg-grpc-proto=={SMG_WIRE}", "grpcio-health-checking", "uvloop"),),
    "litellm": ((f"litellm[proxy]=={LITELLM}",),),
    "core": (("pyzmq", "msgspec"),),
}
PEERS = ("vllm-rust", "dynamo", "smg", "litellm")


def folder() -> Path:
    """The cache folder."""
    named = os.environ.get("BENCH_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else base / "turnwire" / "benchmarks"


def python(name: str) -> Path:
    """The interpreter of a virtual environment in the cache."""
    return folder() / name / "bin" / "python"


def vllm_rust() -> Path:
    """vLLM's Rust frontend: one program, that needs nothing else of vLLM."""
    return folder() / f"vllm-{VLLM}" / "vllm" / "vllm-rs"


def installed(peer: str) -> bool:
    """Whether a peer, with all that its scripted engine needs, is in the cache."""
    if peer == "vllm-rust":
        return vllm_rust().exists() and _stamp("core").exists()
    return _stamp(peer).exists()


def install(peer: str) -> None:
    """Put a peer into the cache."""
    if peer == "vllm-rust":
        _vllm_rust()
        _environment("core")
    else:
        _environment(peer)


def model() -> Path:
    """A folder with Qwen3's tokenizer and template, as every gateway takes it."""
    home = folder() / "qwen3"
    if not (home / "template.jinja").exists():
        real_engines.fetch_model(home)
        config = json.loads((home / "config.json").read_text())
        (home / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 262144}))
        config = json.loads((home / "tokenizer_config.json").read_text())
        (home / "generation_config.json").write_text(json.dumps({"eos_token_id": [151645, 151643]}))
        (home / "template.jinja").write_text(config["chat_template"])
    return home


def program(source: Path) -> Path:
    """A C program, compiled when its source is newer."""
    target = folder() / "bin" / source.stem
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("a C compiler is needed for the scripted engine and the load generator")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-o", str(target), str(source), "-lm"], check=True)
    return target


def _stamp(name: str) -> Path:
    return folder() / name / "installed"


def _environment(name: str) -> None:
    home = folder() / name
    wanted = json.dumps(_PACKAGES[name])
    if _stamp(name).exists() and _stamp(name).read_text() == wanted:
        return
    print(f"installing {name} into {home}", flush=True)
    venv.create(home, with_pip=True, clear=True)
    for packages in _PACKAGES[name]:
        _pip(python(name), "install", *packages)
    _stamp(name).write_text(wanted)


def _vllm_rust() -> None:
    if vllm_rust().exists():
        return
    home = folder() / f"vllm-{VLLM}"
    print(f"fetching vLLM's Rust frontend {VLLM} into {home}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        _pip(Path(sys.executable), "download", "--no-deps", "-d", scratch, f"vllm=={VLLM}")
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract("vllm/vllm-rs", home)
    vllm_rust().chmod(0o755)


def _pip(interpreter: Path, *arguments: str) -> None:
    subprocess.run([str(interpreter), "-m", "pip", "--disable-pip-version-check", "-q", *arguments], check=True)


def main(arguments: list[str]) -> None:
    """`python -m benchmarks install [PEER ...]`."""
    for peer in arguments or PEERS:
        install(peer)
    print(f"model: {model()}")
    for peer in PEERS:
        print(f"{peer}: {'installed' if installed(peer) else 'not installed'}")
