"""A launch line of NVIDIA Dynamo's frontend starts this gateway, and each of its words is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from turnwire.cli.main import main
from turnwire.gateway.settings import Settings, SettingsError
from turnwire.gateway.setup.dynamo import ROWS, row_name
from turnwire.gateway.setup.loading import load

PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"
VALUES: dict[str, Any] = {
    "DYN_HTTP_PORT": ("8123", 8123),
    "DYN_HTTP_BODY_LIMIT_MB": ("45", 45 * 1024 * 1024),
    "DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS": ("2500", 2.5),
    "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS": ("7", 7.0),
    "DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS": ("60", 60.0),
    "DYN_CONTEXT_WINDOW": ("4096", 4096),
    "DYN_LOG": ("warn,foo=debug", "warning"),
    "DYN_LOGGING_JSONL": ("1", "json"),
}


@pytest.mark.parametrize("row", [row for row in ROWS if row.setting], ids=lambda row: row.variable)
def test_a_variable_sets_what_it_means(row: Any) -> None:
    said, meant = VALUES.get(row.variable, ("true", True) if row.switch else ("x", "x"))
    loaded = load({}, config=None, environ={row.variable: said})
    assert getattr(loaded.settings, row.setting) == meant
    assert loaded.origins[row.setting] == row.variable
    assert loaded.notes == (f"{row.variable}: {row.about}",)


def test_a_whole_launch_line_is_understood() -> None:
    line = ("--http-port", "8000", "--enable-anthropic-api", "--strip-anthropic-preamble", "--router-mode", "kv")
    line += (
        "--dyn-tool-call-parser",
        "qwen3_coder",
        "--dyn-reasoning-parser",
        "qwen3",
        "--enable-streaming-tool-dispatch",
    )
    shown = CliRunner().invoke(main, ["config", "show", *line])
    assert shown.exit_code == 0, shown.output
    assert "port = 8000  (--http-port)" in shown.output
    assert 'dialect = "qwen3_coder"  (--dyn-tool-call-parser)' in shown.output
    assert "enable_streaming_tool_dispatch = true" in shown.output


def test_flags_without_a_command_serve() -> None:
    answered = CliRunner().invoke(main, ["--http-port", "0", "--http-host", "0.0.0.0", "--enable-anthropic-api"])
    assert "No API key is set, so 0.0.0.0 would let anybody in" in answered.output
    assert CliRunner().invoke(main, ["--version"]).exit_code == 0


def test_our_own_words_go_first(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("port = 1\n")
    environ = {"DYN_HTTP_PORT": "2"}
    assert load({}, config=str(file), environ=environ).settings.port == 1
    assert load({"dyn_http_port": "3"}, config=str(file), environ=environ).settings.port == 3
    assert load({"dyn_http_port": "3", "port": 4}, config=str(file), environ=environ).settings.port == 4


def test_what_is_unknown_or_wrong_is_told() -> None:
    assert load({}, config=None, environ={"DYN_NEW_THING": "1"}).notes == ("DYN_NEW_THING: means nothing here",)
    with pytest.raises(SettingsError, match="DYN_HTTP_PORT: 'port' has a wrong value"):
        load({}, config=None, environ={"DYN_HTTP_PORT": "many"})


def test_the_page_has_every_row_and_each_setting_exists() -> None:
    names = {field.name for field in msgspec.structs.fields(Settings)}
    assert {row.setting for row in ROWS if row.setting} <= names
    assert len({row_name(row) for row in ROWS}) == len(ROWS)
    told = re.findall(r"^\| (?:`(--[\w-]+)`|) ?\| `(DYN_\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert told == [(row.flag or "", row.variable, row.about) for row in ROWS]
