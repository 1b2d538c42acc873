"""Settings: flags over file over environment over defaults, and errors that name the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwire.gateway.settings import Settings, SettingsError, load_settings


def test_defaults_need_nothing() -> None:
    assert load_settings({}, config=None, environ={}) == Settings()


def test_flags_override_the_file_which_overrides_the_environment(tmp_path: Path) -> None:
    config = tmp_path / "turnwire.toml"
    config.write_text('port = 2\nmodel = "file"\nhistory-thinking = "keep"\n')
    environ = {"TURNWIRE_PORT": "1", "TURNWIRE_MODEL": "env", "TURNWIRE_HOST": "::1", "TURNWIRE_ALIAS": "a,b"}
    settings = load_settings({"port": 3, "model": None, "alias": ()}, config=str(config), environ=environ)
    assert (settings.port, settings.model, settings.host) == (3, "file", "::1")
    assert settings.history_thinking == "keep"
    assert settings.alias == ("a", "b")


def test_an_unknown_key_names_the_close_ones(tmp_path: Path) -> None:
    config = tmp_path / "turnwire.toml"
    config.write_text('dialct = "hermes"\n')
    with pytest.raises(SettingsError, match=r"unknown setting 'dialct'.*dialect"):
        load_settings({}, config=str(config), environ={})


@pytest.mark.parametrize(
    ("content", "message"), [("port = 'x'", "wrong value"), ("port = ", "not valid TOML"), (None, "does not exist")]
)
def test_unusable_files_are_explained(tmp_path: Path, content: str | None, message: str) -> None:
    config = tmp_path / "turnwire.toml"
    if content is not None:
        config.write_text(content)
    with pytest.raises(SettingsError, match=message):
        load_settings({}, config=str(config), environ={})
