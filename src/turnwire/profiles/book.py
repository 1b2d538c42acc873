"""Finding the profile of a model id, whatever vendor prefix, spelling or quantisation it comes with.

Promise: the built-in profiles are read once from package data; a user's file can add profiles, extend or replace
built-in ones, and give any id another name. A file that cannot be used is an error that says where.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from turnwire.conventions import EFFORTS
from turnwire.profiles.profile import Profile

__all__ = ["ProfileBook", "ProfileError", "builtin_book", "find_profile", "load_book", "normalise"]


class ProfileError(ValueError):
    """A profile file that cannot be used; the message says what to change."""


# What quantisers and converters add to a name, once separators are hyphens. None of it says which model it is.
_ADDED = re.compile(
    r"-(?:gguf|awq|gptq|mlx|exl[23]|bnb|hf|fp8|fp4|nvfp4|mxfp4|fp16|bf16|f16|f32|int[48]|[48]bit|w\d+a\d+|dynamic|"
    r"ud|i?q\d+(?:-(?:k|[01]|xxs|xs|s|m|l|nl|xl))*|(?:\d{5}-of-\d{5})|latest|maas|tee)$"
)
_SEPARATORS = re.compile(r"[\s_.:@+/]+")
_VENDOR_WORDS = 3


def normalise(model_id: str) -> str:
    """The part of an id that names the model: no path, no file ending, no quantisation, one kind of separator."""
    name = model_id.strip().rstrip("/").lower().replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".gguf")
    name = _SEPARATORS.sub("-", name)
    while (shorter := _ADDED.sub("", name)) != name:
        name = shorter
    return name


class ProfileBook:
    """Profiles in the order they were read, and other names for ids."""

    def __init__(self, profiles: Iterable[Profile], aliases: Mapping[str, str]) -> None:
        self.profiles = tuple(profiles)
        self.aliases = dict(aliases)
        self._by_name = {profile.name: profile for profile in self.profiles}
        self._patterns = [
            (_SEPARATORS.sub("-", pattern.lower()), profile)
            for profile in self.profiles
            for pattern in profile.patterns
        ]
        self._patterns += [(normalise(name), profile) for profile in self.profiles for name in profile.ids]
        # The pattern that spells out most of the name wins.
        self._patterns.sort(key=lambda entry: len(entry[0].replace("*", "")), reverse=True)

    def named(self, name: str) -> Profile | None:
        """The profile of that very name."""
        return self._by_name.get(name)

    def find(self, model_id: str) -> Profile | None:
        """The profile of a model id, or None. Aliases are followed first; a vendor's word in front of the name
        (`nvidia-nemotron-...`) is tolerated."""
        seen = {model_id}
        while (target := self.aliases.get(model_id)) is not None and target not in seen:
            seen.add(target)
            model_id = target
        if model_id in self._by_name:
            return self._by_name[model_id]
        name = normalise(model_id)
        for candidate in _without_vendor(name):
            for pattern, profile in self._patterns:
                if fnmatchcase(candidate, pattern):
                    return profile
        return None


def _without_vendor(name: str) -> Iterator[str]:
    yield name
    for _ in range(_VENDOR_WORDS):
        _, dash, name = name.partition("-")
        if not dash:
            return
        yield name


@cache
def builtin_book() -> ProfileBook:
    """The profiles that come with the package."""
    entries: dict[str, dict[str, Any]] = {}
    for file in sorted(resources.files("turnwire.profiles").joinpath("data").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            _merge(entries, tomllib.loads(file.read_text(encoding="utf-8")), file.name)
    return ProfileBook((_profile(entry, "built-in") for entry in entries.values()), {})


def load_book(path: str | Path | None) -> ProfileBook:
    """The built-in profiles, extended by a user's file. There, `extends = "NAME"` starts from that profile, a profile
    of a known name replaces it, and the table `[aliases]` maps ids to ids or profile names."""
    if path is None:
        return builtin_book()
    try:
        read = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"The profiles file {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"The profiles file {path} is not valid TOML: {error}.") from None
    entries = {profile.name: msgspec.to_builtins(profile) for profile in builtin_book().profiles}
    aliases = _merge(entries, read, str(path))
    return ProfileBook((_profile(entry, str(path)) for entry in entries.values()), aliases)


def _merge(entries: dict[str, dict[str, Any]], read: dict[str, Any], where: str) -> dict[str, str]:
    unknown = set(read) - {"profile", "aliases"}
    if unknown:
        raise ProfileError(f"{where}: unknown table {sorted(unknown)[0]!r}; write [[profile]] and [aliases].")
    for entry in read.get("profile", []):
        name = entry.get("name")
        if not isinstance(name, str):
            raise ProfileError(f"{where}: each [[profile]] needs a name.")
        base = entry.pop("extends", None)
        if base is not None and base not in entries:
            close = difflib.get_close_matches(str(base), entries, 3)
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            raise ProfileError(f"{where}: {name} extends {base!r}, which is not known.{hint}")
        inherited = {key: value for key, value in entries.get(base, {}).items() if key not in ("ids", "patterns")}
        entries[name] = {**inherited, **entry}
    aliases = read.get("aliases", {})
    if not all(isinstance(target, str) for target in aliases.values()):
        raise ProfileError(f"{where}: [aliases] maps an id to an id or a profile name, both as text.")
    return dict(aliases)


def _profile(entry: dict[str, Any], where: str) -> Profile:
    try:
        profile = msgspec.convert(entry, Profile)
    except msgspec.ValidationError as error:
        raise ProfileError(f"{where}: profile {entry.get('name')!r}: {error}.") from None
    unknown = set(profile.effort) - set(EFFORTS)
    if unknown:
        raise ProfileError(f"{where}: profile {profile.name!r}: effort {sorted(unknown)[0]!r} is none of {EFFORTS}.")
    return profile


def find_profile(model_id: str, book: ProfileBook | None = None) -> Profile | None:
    """The profile of a model id, or None where the family is not known."""
    return (book or builtin_book()).find(model_id)
