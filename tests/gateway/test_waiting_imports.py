"""Large libraries that only some gateways need are not in memory before they are needed."""

from __future__ import annotations

import subprocess
import sys

LIBRARIES = ("aiohttp", "cryptography", "fastokens", "mcp", "redis", "tokenizers", "zmq")


def loaded_after(program: str) -> set[str]:
    """Which of the libraries a fresh interpreter has in memory once it has run `program`."""
    shown = f"{program}\nimport sys\nprint(*(name for name in {LIBRARIES!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, timeout=60)
    return set(ran.stdout.split())


def test_a_gateways_own_code_loads_none() -> None:
    assert loaded_after("import turnwire.gateway.server") == set()


def test_the_cipher_waits_for_the_first_seal() -> None:
    made = (
        "from array import array\n"
        "from turnwire.prompts.recall.seals import Sealer, Segment\n"
        "sealer = Sealer([bytes(32)])\n"
        "turn = sealer.turn('turn', model='model', tenant='')\n"
        "turn.add([1, 2, 3])\n"
    )
    assert loaded_after(made) == set()
    assert loaded_after(made + "assert turn.finish()") == {"cryptography"}
