"""GGUF files by hub id: `MAKER/REPOSITORY`, or `MAKER/REPOSITORY:QUANT` where there are several.

Promise: the file comes through the hub's own cache (its resume, its mirrors, its token); what is offered instead, or
why nothing can be had, is said in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from turnwire.engines.embedded.downloads import DownloadError

__all__ = ["choose_file", "fetch_from_hub", "is_hub_id"]

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}(?::[\w.-]{1,64})?")
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
# What to take where nothing is said: small enough to run, good enough to use.
_PREFERRED = ("q4_k_m", "q4_k_s", "q4_0", "q5_k_m", "q8_0")


def is_hub_id(model: str) -> bool:
    """Whether a name has the form of a hub id."""
    return _ID.fullmatch(model) is not None


def fetch_from_hub(model: str) -> Path:
    """The model's file, fetched unless it is in the hub's cache; the first one of a model split over several."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    repository, _, quant = model.partition(":")
    try:
        file = _cached_file(repository, quant)
        if file is not None:
            return file
        names = huggingface_hub.HfApi().list_repo_files(repository)
        chosen = choose_file(names, quant, model)
        paths = [Path(huggingface_hub.hf_hub_download(repository, name)) for name in _parts(chosen, names)]
        return paths[0]
    except RepositoryNotFoundError:
        raise DownloadError(f"The hub has no {repository}, or it needs a token (set HF_TOKEN).") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise DownloadError(
            f"{repository} cannot be fetched from the hub ({type(error).__name__}), and it is not in its cache. Give a "
            "model file: --model FILE.gguf"
        ) from error


def choose_file(names: Sequence[str], quant: str, model: str) -> str:
    """The file that an id means; of a split model the first part."""
    files = [name for name in sorted(names) if name.endswith(".gguf") and "mmproj" not in name.lower()]
    first = [name for name in files if (split := _SPLIT.search(name)) is None or split.group(1) == "00001"]
    if not first:
        raise DownloadError(f"{model} holds no .gguf file; the embedded engine runs those only.")
    if quant:
        found = [name for name in first if quant.lower() in name.lower()]
        exact = [name for name in found if re.search(rf"[-._]{re.escape(quant.lower())}[-.]", name.lower())]
        found = exact or found
    else:
        by_preference = (next((n for n in first if wish in n.lower()), None) for wish in _PREFERRED)
        found = [name for name in by_preference if name is not None][:1] or first
    if len(found) == 1:
        return found[0]
    offered = ", ".join(Path(name).name for name in (found or first)[:12])
    raise DownloadError(f"{model} does not say which file: {offered}. Name the quantisation, as in MAKER/REPO:Q4_K_M")


def _parts(first: str, names: Sequence[str]) -> list[str]:
    """All files of a split model, the first one first."""
    if _SPLIT.search(first) is None:
        return [first]
    stem = _SPLIT.sub("", first)
    return [name for name in sorted(names) if _SPLIT.search(name) and _SPLIT.sub("", name) == stem]


def _cached_file(repository: str, quant: str) -> Path | None:
    """The file in the hub's cache, without asking the hub."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}" / "snapshots"
    files = {str(path.relative_to(folder)): path for path in folder.glob("*/**/*.gguf")} if folder.is_dir() else {}
    try:
        return files[choose_file(list(files), quant, repository)] if files else None
    except DownloadError:
        return None
