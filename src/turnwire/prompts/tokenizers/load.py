"""Loads a tokenizer from whatever a model comes with, or the one that ships with Turnwire.

Promise: `load_tokenizer` gives exact ids or a TokenizerError that says what to change; nothing is guessed.
"""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from turnwire.prompts.tokenizers.fast import equal_encoder
from turnwire.prompts.tokenizers.gguf import from_gguf_metadata
from turnwire.prompts.tokenizers.gguf_file import GGUFError, read_metadata
from turnwire.prompts.tokenizers.hf import HFTokenizer, TokenizerError, import_tokenizers
from turnwire.prompts.tokenizers.ranks import from_tekken, from_tiktoken

__all__ = ["HFTokenizer", "TokenizerError", "load_tokenizer"]

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_IN_FOLDER = ("tokenizer.json", "tekken.json", "tiktoken.model", "*.tiktoken", "*.gguf")


class _AddedToken(msgspec.Struct):
    content: str
    special: bool = False


class _TokenizerConfig(msgspec.Struct):
    added_tokens_decoder: dict[str, _AddedToken] = {}


def load_tokenizer(source: str | os.PathLike[str] | None = None, *, pattern: str | None = None) -> HFTokenizer:
    """The tokenizer at `source`: a `tokenizer.json`, `tekken.json`, `.tiktoken` or `.gguf` file, a folder that holds
    one, or a hub id such as `org/model`. None is the one that ships with Turnwire. `pattern` says how a `.tiktoken`
    file's text is split into words where its name does not."""
    library: Any = import_tokenizers()
    if source is None:
        text = resources.files("turnwire.prompts").joinpath("data/turnwire-tokenizer.json").read_text(encoding="utf-8")
        return HFTokenizer(library.Tokenizer.from_str(text), name="turnwire")
    path = Path(source)
    if not path.exists():
        return _from_hub(library, str(source))
    if path.is_dir():
        path = _file_in(path)
    inner = _from_file(library, path, pattern)
    found = HFTokenizer(inner, name=path.parent.name or path.name, fast=equal_encoder(inner, path))
    found.prepare()
    return found


def _from_file(library: Any, path: Path, pattern: str | None) -> Any:
    if path.suffix == ".gguf":
        try:
            return from_gguf_metadata(read_metadata(path))
        except GGUFError as error:
            raise TokenizerError(str(error)) from None
    if path.suffix == ".tiktoken" or path.name == "tiktoken.model":
        return from_tiktoken(path, pattern=pattern, added=_added_tokens(path.parent))
    if path.name.startswith("tekken"):
        return from_tekken(path)
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"{path}: not a tokenizer.json file ({error})") from None


def _file_in(folder: Path) -> Path:
    for name in _IN_FOLDER:
        found = sorted(folder.glob(name))
        if len(found) == 1:
            return found[0]
        if found:
            raise TokenizerError(f"{folder}: {len(found)} files match {name}; name one of them")
    raise TokenizerError(f"{folder}: no tokenizer found; expected one of {', '.join(_IN_FOLDER)}")


def _added_tokens(folder: Path) -> dict[str, tuple[int, bool]]:
    """The added tokens that stand beside a ranks file, in tokenizer_config.json."""
    config = folder / "tokenizer_config.json"
    if not config.exists():
        return {}
    try:
        found = msgspec.json.decode(config.read_bytes(), type=_TokenizerConfig)
        return {token.content: (int(id_), token.special) for id_, token in found.added_tokens_decoder.items()}
    except (ValueError, msgspec.MsgspecError) as error:
        raise TokenizerError(f"{config}: its added_tokens_decoder cannot be read ({error})") from None


def _from_hub(library: Any, name: str) -> HFTokenizer:
    if not _HUB_ID.fullmatch(name):
        raise TokenizerError(f"{name}: no such file or folder, and not a hub id (org/model)")
    try:
        return HFTokenizer(library.Tokenizer.from_pretrained(name), name=name)
    except Exception as error:  # network, absence and malformed files all come as bare Exceptions
        raise TokenizerError(
            f"{name}: no such file or folder, and the model hub did not give a tokenizer ({error}); "
            "download its tokenizer.json and give the path"
        ) from None
