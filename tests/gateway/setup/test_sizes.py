"""Sizes with units, wherever a setting can be given."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from turnwire.cli.serve import serve
from turnwire.gateway.settings import Settings, SettingsError, ToolSettings, sizes
from turnwire.gateway.setup.config_file import commented_file
from turnwire.gateway.setup.loading import load_settings
from turnwire.gateway.setup.sizes import bytes_of, spelled


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5000000", 5_000_000),
        ("0", 0),
        ("7B", 7),
        ("512MiB", 512 << 20),
        ("512 mib", 512 << 20),
        (" 2GB ", 2 * 10**9),
        ("1.5GiB", 3 << 29),
        ("0.3kB", 300),
        ("64KB", 64_000),
        ("1TiB", 1 << 40),
        ("1TB", 10**12),
    ],
)
def test_a_size_is_bytes_or_a_number_with_a_unit(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "512M", "512Mi", "1.5", "0.3B", "-1MiB", "1,5GiB", "1e3", "lots", "٣MiB"])
def test_what_is_no_size_is_told_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no size: write whole bytes, or a number with one of TiB, .*: 512MiB$"):
        bytes_of(text)


@pytest.mark.parametrize(("size", "text"), [(0, "0"), (99, "99"), (1025, "1025"), (4096, "4KiB"), (3 << 29, "1536MiB")])
def test_a_size_is_spelled_as_it_is_read(size: int, text: str) -> None:
    assert spelled(size) == text
    assert bytes_of(text) == size


def test_every_source_takes_units(tmp_path: Path) -> None:
    file = tmp_path / "turnwire.toml"
    file.write_text('max_body = "64MiB"\nmax_head = 9999\n[tools.docs]\nmcp = "http://h/mcp"\nmax-bytes = "1MiB"\n')
    context = serve.make_context("serve", ["--memory", "1GiB"])
    flags = {name: value for name, value in context.params.items() if name != "config"}
    settings = load_settings(flags, config=str(file), environ={"TURNWIRE_JOURNAL_BYTES": "8MB"})
    assert (settings.memory, settings.max_body, settings.max_head) == (1 << 30, 64 << 20, 9999)
    assert (settings.journal_bytes, settings.tools["docs"].max_bytes) == (8_000_000, 1 << 20)


@pytest.mark.parametrize(
    ("flags", "environ", "text", "words"),
    [
        ({"memory": "512M"}, {}, "", r"^--memory: 'memory' has a wrong value: '512M' is no size: write .*512MiB$"),
        ({}, {"TURNWIRE_MAX_BODY": "big"}, "", r"^TURNWIRE_MAX_BODY: 'max_body' has a wrong value: 'big' is no size"),
        ({}, {}, '\nmax_image = "3 QB"', r"toml:2: 'max_image' has a wrong value: '3 QB' is no size"),
        ({"memory": "1MiB"}, {}, "", r"^--memory: 'memory' has a wrong value: it must be >= 4MiB$"),
        ({}, {}, "max_body = 0", r"toml:1: 'max_body' has a wrong value: it must be >= 1$"),
        ({}, {}, '[tools.d]\nmcp = "http://h"\nmax_bytes = "x"', r"toml:3: 'max_bytes' .*'x' is no size"),
    ],
)
def test_a_wrong_size_is_told_with_its_place(
    tmp_path: Path, flags: dict[str, str], environ: dict[str, str], text: str, words: str
) -> None:
    file = tmp_path / "turnwire.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=words):
        load_settings(flags, config=str(file), environ=environ)


def test_every_setting_in_bytes_is_one() -> None:
    assert sizes(Settings) == {
        *("memory", "capture_file_bytes", "capture_folder_bytes", "journal_bytes"),
        *("max_body", "max_schema", "max_image", "max_head"),
    }
    assert sizes(ToolSettings) == {"max_bytes"}
    named = {field.name for kind in (Settings, ToolSettings) for field in msgspec.structs.fields(kind)}
    assert {name for name in named if name.endswith("_bytes")} <= sizes(Settings) | sizes(ToolSettings)


def test_a_written_file_has_units() -> None:
    assert '#memory = "512MiB"\n' in commented_file()
    assert '#max_bytes = "64KiB"' in commented_file()
