"""The reference of a large tokenizer is asked in another process, and read here only where it is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers

import turnwire.prompts
from turnwire.gateway import reference_process
from turnwire.gateway.reference_process import ask_reference
from turnwire.prompts.tokenizers import load as tokenizers_load
from turnwire.prompts.tokenizers.load import evidence_in, load_tokenizer

OWN = load_tokenizer()
SHIPPED = Path(turnwire.prompts.__file__).parent / "data" / "turnwire-tokenizer.json"
PROSE = "The gateway keeps the prompt of every session: 12345 tokens, 你好, <think>\n\n</think> and more."


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped tokenizer counts as a large one."""
    pytest.importorskip("fastokens")
    monkeypatch.setattr(tokenizers_load, "_LARGE_BYTES", 0)


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose reference is read in this process."""
    read, reference = [], tokenizers_load._reference

    def watched(path: Path) -> object:
        read.append(path)
        return reference(path)

    monkeypatch.setattr(tokenizers_load, "_reference", watched)
    return read


def test_it_says_what_the_reference_says_here() -> None:
    assert ask_reference(SHIPPED)() == evidence_in(SHIPPED)


def test_the_reference_is_not_read_here_where_nothing_needs_it(large: None, read_here: list[Path]) -> None:
    found = load_tokenizer(SHIPPED, ask_reference=ask_reference)
    assert found.fast
    assert read_here == []
    assert (found.encode(PROSE), found.decode([8191])) == (OWN.encode(PROSE), OWN.decode([8191]))
    assert (found.cuts, found.density, found.control_tokens) == (OWN.cuts, OWN.density, OWN.control_tokens)


def test_it_is_read_here_for_what_the_faster_library_cannot_do(
    large: None, read_here: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    inner = tokenizers.Tokenizer.from_file(str(SHIPPED))
    inner.add_tokens([tokenizers.AddedToken("naturally", normalized=False)])
    inner.save(str(path))
    found = load_tokenizer(path, ask_reference=ask_reference)
    assert found.fast
    assert read_here == [path]
    assert found.encode_plain("<|im_end|>naturally", True)[-1] == inner.token_to_id("naturally")


def test_a_small_file_starts_no_process(read_here: list[Path]) -> None:
    def never(_: Path) -> None:
        raise AssertionError

    assert load_tokenizer(SHIPPED, ask_reference=never).encode(PROSE) == OWN.encode(PROSE)  # type: ignore[arg-type]
    assert read_here == [SHIPPED]


@pytest.mark.parametrize(
    "program",
    ["raise SystemExit(1)", "print('nothing that is understood')", "import time; time.sleep(60)", None],
    ids=["fails", "babbles", "hangs", "is not there"],
)
def test_a_process_that_does_not_answer_is_done_without(
    monkeypatch: pytest.MonkeyPatch, large: None, read_here: list[Path], program: str | None
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(_: list[str], *, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        if program is None:
            raise FileNotFoundError(sys.executable)
        started.append(popen([sys.executable, "-c", program], stdin=stdin, stdout=stdout, stderr=stderr))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(reference_process, "_SECONDS", 1.0)
    found = load_tokenizer(SHIPPED, ask_reference=ask_reference)
    assert found.fast
    assert found.encode(PROSE) == OWN.encode(PROSE)
    assert read_here == [SHIPPED]
    assert all(process.poll() is not None for process in started)
