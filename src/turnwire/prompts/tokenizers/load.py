"""Loads a tokenizer from whatever a model comes with, or the one that ships with Turnwire.

Promise: `load_tokenizer` gives exact ids or a TokenizerError that says what to change; nothing is guessed. This is the
one module of its package that reads files and asks the model hub; what it calls gets bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, MutableMapping
from hashlib import file_digest
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from turnwire.prompts.tokenizers.evidence import Evidence, evidence_of
from turnwire.prompts.tokenizers.fast import compared, import_fast
from turnwire.prompts.tokenizers.gguf import from_gguf_metadata
from turnwire.prompts.tokenizers.gguf_file import GGUFError, GGUFFacts, facts_of, read_metadata
from turnwire.prompts.tokenizers.hf import HFTokenizer
from turnwire.prompts.tokenizers.ranks import from_tekken, from_tiktoken
from turnwire.prompts.tokenizers.reference import Reference, TokenizerError, import_tokenizers

__all__ = [
    "AskReference",
    "HFTokenizer",
    "TokenizerError",
    "evidence_in",
    "from_library",
    "is_gguf",
    "load_tokenizer",
    "read_gguf",
]

AskReference: TypeAlias = Callable[[Path], Callable[[], Evidence | None]]
"""Begins to read the reference of a file elsewhere; what it returns waits for the evidence, or None where it fails."""

# The reference of a smaller file leaves less behind in memory than it takes to read it elsewhere.
_LARGE_BYTES = 4 << 20
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_IN_FOLDER = ("tokenizer.json", "tekken.json", "tiktoken.model", "*.tiktoken", "*.gguf")


class _AddedToken(msgspec.Struct):
    content: str
    special: bool = False


class _TokenizerConfig(msgspec.Struct):
    added_tokens_decoder: dict[str, _AddedToken] = {}


def load_tokenizer(
    source: str | os.PathLike[str] | None = None,
    *,
    pattern: str | None = None,
    ask_reference: AskReference | None = None,
    known: MutableMapping[bytes, HFTokenizer] | None = None,
) -> HFTokenizer:
    """The tokenizer at `source`: a `tokenizer.json`, `tekken.json`, `.tiktoken` or `.gguf` file, a folder that holds
    one, or a hub id such as `org/model`. None is the one that ships with Turnwire. `pattern` says how a `.tiktoken`
    file's text is split into words where its name does not. Where `ask_reference` is given, a faster library is held
    against what it says of a large file, and the reference is read here only if it is needed. `known` keeps what was
    made of a `tokenizer.json` by the file's digest: an equal file is not read a second time."""
    if source is None:
        text = resources.files("turnwire.prompts").joinpath("data/turnwire-tokenizer.json").read_text(encoding="utf-8")
        return from_library(import_tokenizers().Tokenizer.from_str(text), name="turnwire")
    path = Path(source)
    if not path.exists():
        return _from_hub(str(source))
    if path.is_dir():
        path = _file_in(path)
    if path.suffix == ".json" and known is not None:
        found = _once(path, pattern, ask_reference, known)
    else:
        found = _from_file(path, pattern, ask_reference)
    found.prepare()
    return found


def from_library(inner: Any, *, name: str) -> HFTokenizer:
    """A tokenizer of the `tokenizers` library as one of ours."""
    reference = Reference(inner)
    return HFTokenizer(reference.facts, reference, reference.decoding, name=name)


def read_gguf(path: str | os.PathLike[str]) -> GGUFFacts:
    """What a GGUF file says about its model; a GGUFError names the file and what is wrong with it."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            return facts_of(read_metadata(file, place.stat().st_size))
    except OSError as error:
        raise GGUFError(f"{place}: {error.strerror or error}") from None
    except GGUFError as error:
        raise GGUFError(f"{place}: {error}") from None


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a GGUF file by its name or, as some keep models under other names, by its first bytes."""
    place = Path(path)
    if place.suffix == ".gguf":
        return True
    try:
        with place.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def evidence_in(path: Path) -> Evidence:
    """What the reference says of a `tokenizer.json`."""
    return evidence_of(_reference(path))


def _once(
    path: Path, pattern: str | None, ask_reference: AskReference | None, known: MutableMapping[bytes, HFTokenizer]
) -> HFTokenizer:
    try:
        with path.open("rb") as file:
            digest = file_digest(file, "blake2b").digest()
    except OSError as error:
        raise TokenizerError(f"{path}: {error.strerror or error}") from None
    found = known.get(digest)
    if found is not None:
        return found.called(_name(path))
    found = known[digest] = _from_file(path, pattern, ask_reference)
    return found


def _name(path: Path) -> str:
    return path.parent.name or path.name


def _from_file(path: Path, pattern: str | None, ask_reference: AskReference | None) -> HFTokenizer:
    name = _name(path)
    if is_gguf(path):
        try:
            return from_library(from_gguf_metadata(read_gguf(path).metadata), name=name)
        except GGUFError as error:
            raise TokenizerError(str(error)) from None
    if path.suffix == ".tiktoken" or path.name == "tiktoken.model":
        raw, added = _bytes(path), _added_tokens(path.parent)
        return from_library(from_tiktoken(raw, str(path.resolve()), pattern=pattern, added=added), name=name)
    if path.name.startswith("tekken"):
        return from_library(from_tekken(_bytes(path), str(path)), name=name)
    return _from_json(path, name, ask_reference)


def _from_json(path: Path, name: str, ask_reference: AskReference | None) -> HFTokenizer:
    told = None
    if ask_reference is not None and path.stat().st_size >= _LARGE_BYTES and import_fast() is not None:
        told = ask_reference(path)
    # The one that stays is read first: what is read after it and let go leaves no holes in memory.
    fast = _read_fast(path)
    evidence = None if told is None else told()
    if fast is not None and evidence is not None:
        encoder, decoding = compared(fast, evidence, lambda: _reference(path))
        return HFTokenizer(evidence.facts, encoder, decoding, name=name)
    reference = _reference(path)
    if fast is None:
        return HFTokenizer(reference.facts, reference, reference.decoding, name=name)
    encoder, decoding = compared(fast, evidence_of(reference), lambda: reference)
    return HFTokenizer(reference.facts, encoder, decoding, name=name)


def _reference(path: Path) -> Reference:
    library = import_tokenizers()
    try:
        return Reference(library.Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"{path}: not a tokenizer.json file ({error})") from None


def _read_fast(path: Path) -> Any | None:
    """fastokens' tokenizer of a `tokenizer.json`; None where it is not installed or cannot read the file."""
    library = import_fast()
    try:
        return None if library is None else library.Tokenizer.from_file(str(path))
    except Exception:  # a file it cannot read is a reason to do without it, whatever it raises
        return None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{path}: {error.strerror or error}") from None


def _file_in(folder: Path) -> Path:
    for name in _IN_FOLDER:
        found = sorted(folder.glob(name))
        if len(found) == 1:
            return found[0]
        if found:
            raise TokenizerError(f"{folder}: {len(found)} files match {name}; name one of them")
    raise TokenizerError(f"{folder}: no tokenizer found; expected one of {', '.join(_IN_FOLDER)}")


def _added_tokens(folder: Path) -> dict[str, tuple[int, bool]]:
    """The added tokens that come with a ranks file, in tokenizer_config.json."""
    config = folder / "tokenizer_config.json"
    if not config.exists():
        return {}
    try:
        found = msgspec.json.decode(config.read_bytes(), type=_TokenizerConfig)
        return {token.content: (int(id_), token.special) for id_, token in found.added_tokens_decoder.items()}
    except (ValueError, msgspec.MsgspecError) as error:
        raise TokenizerError(f"{config}: its added_tokens_decoder cannot be read ({error})") from None


def _from_hub(name: str) -> HFTokenizer:
    if not _HUB_ID.fullmatch(name):
        raise TokenizerError(f"{name}: no such file or folder, and not a hub id (org/model)")
    library = import_tokenizers()
    try:
        return from_library(library.Tokenizer.from_pretrained(name), name=name)
    except Exception as error:  # network, absence and malformed files all come as bare Exceptions
        raise TokenizerError(
            f"{name}: no such file or folder, and the model hub did not give a tokenizer ({error}); "
            "download its tokenizer.json and give the path"
        ) from None
