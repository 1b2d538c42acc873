"""Python files of the user's own: tools, dialects.

Promise: what is run is the file as it stands. Compiled code is neither read nor kept beside it: Python takes that for a
file's own as long as size and second of its last change are the same.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location

__all__ = ["source_spec"]


class _AsItStands(SourceFileLoader):
    def path_stats(self, path: str) -> dict[str, float]:
        """Unknown, so that no compiled code can be of the same age."""
        raise OSError(f"{path}: only its text counts")


def source_spec(name: str, path: str) -> ModuleSpec | None:
    """How the file at `path` is loaded as the module `name`; None where it is not called a Python file."""
    return spec_from_file_location(name, path, loader=_AsItStands(name, path)) if path.endswith(".py") else None
