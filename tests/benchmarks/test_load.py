"""The load generator and the scripted engine agree with each other on every token, whole and paced."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.engines.playbook import Counter, Playbook  # noqa: E402
from benchmarks.engines.script_files import stream_lines  # noqa: E402
from benchmarks.peers.processes import Processes, free_port, listens  # noqa: E402

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
WORDS, END = 40, 7
BODY = b'{"prompt":[1,2],"stream":true}'


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for source in ("engines/completions.c", "load/loadgen.c"):
        target = folder / Path(source).stem
        command = [
            str(COMPILER),
            "-O1",
            "-Wall",
            "-Werror",
            "-o",
            str(target),
            str(ROOT / "benchmarks" / source),
            "-lm",
        ]
        subprocess.run(command, check=True)
    return folder


class Engine:
    """The scripted engine with one script, and what it counts."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.playbook = Playbook(folder)
        pieces = [(5, " elephant")] * WORDS
        (folder / "words.sse").write_text("\n\n".join(stream_lines(pieces, END)) + "\n\n")
        self.playbook.play("words", 0)
        self.counter = Counter(folder / "count")
        self.port = free_port()
        self.body = folder / "body.json"
        self.body.write_bytes(BODY)
        self._load = programs / "loadgen"
        self.processes = Processes(folder)
        self.processes.start("engine", [programs / "completions", str(self.port), folder, folder / "count"])
        self.processes.wait(listens(self.port))

    def load(self, *arguments: str, **environment: str) -> dict[str, object]:
        command = [str(self._load), str(self.port), "/v1/completions", str(self.body), *arguments]
        given = {"WORD": " elephant", "ENDING": "[DONE]", **environment}
        ran = subprocess.run(command, env=given, capture_output=True, text=True, check=True, timeout=60)
        found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
        return found


@pytest.fixture
def engine(tmp_path: Path, programs: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path, programs)
    yield engine
    engine.processes.stop()


def test_every_token_of_every_turn_is_counted_on_both_sides(engine: Engine) -> None:
    found = engine.load("5", "turns", "20")
    assert (found["turns"], found["errors"], found["cut"]) == (20, 0, 0)
    assert found["words"] == 20 * WORDS
    assert found["events"] == 20 * (WORDS + 3)  # the finish, the usage and [DONE]
    assert engine.counter.value == 20 * (WORDS + 1)


def test_paced_tokens_come_one_a_step_and_none_is_early(engine: Engine) -> None:
    engine.playbook.play("words", 0.01)
    found = engine.load("3", "turns", "3", PERIOD="0.01")
    assert found["words"] == 3 * WORDS
    seconds, late = found["seconds"], found["late_ms"]
    assert isinstance(seconds, float)
    assert isinstance(late, list)
    assert seconds >= 0.01 * (WORDS - 1)
    assert 0 <= late[0] <= late[1] <= late[2] <= late[3]


def test_an_answer_that_ends_early_is_not_a_success(engine: Engine) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        engine.load("1", "turns", "1", ENDING="no such text")


def test_a_client_that_leaves_ends_its_stream(engine: Engine) -> None:
    engine.playbook.play("words", 0.2)
    head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", engine.port)) as leaving:
        leaving.sendall(head + BODY)
        received = b""
        while b"elephant" not in received:
            data = leaving.recv(4096)
            assert data, received
            received += data
    said = engine.counter.value
    engine.playbook.play("words", 0)
    assert engine.load("1", "turns", "1")["words"] == WORDS
    assert engine.counter.value <= said + 1 + WORDS + 1
