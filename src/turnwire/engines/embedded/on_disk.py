"""The models on this machine that the embedded engine can run: what they are called, how big they are, how to be rid of
them.

Promise: looks only into the project's own cache folder and the hub's; removes only files that it lists.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from turnwire.engines.embedded.downloads import KNOWN_MODELS, DownloadError, cache_folder

__all__ = ["DiskModel", "file_on_disk", "models_on_disk", "remove_model"]

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


class DiskModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model on disk. `name` is what `--model` takes; `files` is all it consists of, `size` their bytes."""

    name: str
    size: int
    files: tuple[str, ...]


def models_on_disk() -> list[DiskModel]:
    """Every model that needs no download."""
    return sorted([*_fetched(), *_from_hub()], key=lambda model: model.name.lower())


def file_on_disk(name: str) -> str | None:
    """The first file of the model that is called so; its file's name is a name too, with or without the ending."""
    wanted = name.lower().removesuffix(".gguf")
    for model in models_on_disk():
        if wanted in (model.name.lower(), *(_stem(file).removesuffix(".gguf") for file in model.files)):
            return model.files[0]
    return None


def remove_model(name: str) -> DiskModel:
    """Delete a model's files; DownloadError where there is none of that name."""
    found = next(
        (model for model in models_on_disk() if name.lower() in (model.name.lower(), *map(_stem, model.files))), None
    )
    if found is None:
        names = ", ".join(model.name for model in models_on_disk()) or "none"
        raise DownloadError(f"No model called {name!r} is on disk. There are: {names}.")
    for file in found.files:
        path = Path(file)
        # Files in the hub's cache are links to the real ones.
        path.resolve().unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    _tidy(Path(found.files[0]))
    return found


def _stem(file: str) -> str:
    return Path(file).name.lower()


def _tidy(file: Path) -> None:
    """Remove the hub's folder of a repository that holds no model any more."""
    repository = next((parent for parent in file.parents if parent.name.startswith("models--")), None)
    if repository is not None and not any(repository.glob("snapshots/*/**/*.gguf")):
        shutil.rmtree(repository, ignore_errors=True)


def _fetched() -> Iterator[DiskModel]:
    names = {known.file: known.name for known in KNOWN_MODELS.values()}
    for path in cache_folder().glob("*.gguf"):
        yield DiskModel(name=names.get(path.name, str(path)), size=path.stat().st_size, files=(str(path),))


def _from_hub() -> Iterator[DiskModel]:
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return
    for path in sorted(Path(HF_HUB_CACHE).glob("models--*/snapshots/*/**/*.gguf")):
        if _LATER_PART.search(path.name) or path.name.lower().startswith("mmproj") or not path.exists():
            continue
        stem = re.sub(r"-00001-of-\d{5}\.gguf$", "", path.name)
        files = [path] if stem == path.name else sorted(path.parent.glob(f"{stem}-*-of-*.gguf"))
        repository = path.relative_to(HF_HUB_CACHE).parts[0].removeprefix("models--").replace("--", "/", 1)
        quant = re.search(
            r"[-.]((?:UD-)?(?:I?Q\d\w*|F16|BF16|F32|MXFP4\w*))$", stem.removesuffix(".gguf"), re.IGNORECASE
        )
        name = f"{repository}:{quant.group(1)}" if quant else repository
        yield DiskModel(name=name, size=sum(file.stat().st_size for file in files), files=tuple(map(str, files)))
