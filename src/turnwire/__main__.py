"""`turnwire` and `python -m turnwire`: the command line, or what to install for it.

Promise: without the extras that the command line needs, one sentence says how to get them; never a trace.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_NEEDED = ("click", "rich", "aiohttp", "starlette", "uvicorn")


def main() -> None:
    """Run the command line."""
    try:
        from turnwire.cli.main import main as command_line
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit(
            "This is turnwire's library alone. Its command line and gateway need more:\n"
            "  pip install 'turnwire[server]'            in front of an engine you run\n"
            "  pip install 'turnwire[server,embedded]'   with a small model in the same process"
        )
    command_line(prog_name="turnwire")


if __name__ == "__main__":
    main()
