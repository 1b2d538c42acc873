"""Settings: flags over environment over file over defaults, and errors that name the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnwire.cli.serve import serve
from turnwire.gateway.settings import ModelSettings, Settings, SettingsError, ToolSettings, described
from turnwire.gateway.setup.config_check import problems
from turnwire.gateway.setup.config_file import GROUPS, commented_file
from turnwire.gateway.setup.loading import load, load_settings

TWO_MODELS = """\
log_level = "error"

[[model]]
name = "big"
engine = "http://127.0.0.1:1"
roles = ["default", "opus"]
fallbacks = ["small"]

[model.defaults]
temperature = 0.2

[[model]]
name = "small"
aliases = ["tiny"]
engine = "openai:http://127.0.0.1:2/v1"
key-env = "TURNWIRE_SMALL_KEY"
roles = ["haiku", "background"]
window = 4096
"""


def written(folder: Path, text: str) -> str:
    file = folder / "turnwire.toml"
    file.write_text(text)
    return str(file)


def test_defaults_need_nothing() -> None:
    assert load_settings({}, config=None, environ={}) == Settings()


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, 'port = 2\nmodel = "file"\nstore = "memory"\nhistory-thinking = "keep"\n')
    environ = {"TURNWIRE_PORT": "1", "TURNWIRE_MODEL": "env", "TURNWIRE_ALIAS": "a,b", "TURNWIRE_KEYS": ""}
    loaded = load({"port": 3, "model": None, "alias": ()}, config=config, environ=environ)
    settings = loaded.settings
    assert (settings.port, settings.model, settings.store, settings.keys) == (3, "env", "memory", None)
    assert settings.history_thinking == "keep"
    assert settings.alias == ("a", "b")
    assert loaded.origins == {
        "port": "--port",
        "model": "TURNWIRE_MODEL",
        "alias": "TURNWIRE_ALIAS",
        "store": f"{config}:3",
        "history_thinking": f"{config}:4",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('host = "::1"\ndialct = "hermes"', r":2: unknown setting 'dialct'. Did you mean dialect"),
        ("\nport = 'x'", r":2: 'port' has a wrong value: Expected 'int'"),
        ("port = 99999", r":1: 'port' has a wrong value: Expected 'int' <= 65535"),
        ("concurrency = -5", r":1: 'concurrency' has a wrong value"),
        ("keepalive = -1", r":1: 'keepalive' has a wrong value"),
        ("port = 1 2", "not valid TOML.*line 1"),
        (None, "does not exist.*config init"),
        ('model = ["a"]', r"\[\[model\]\] tables"),
        ('[[model]]\nengine = "embedded"', r":1: every \[\[model\]\] needs a name"),
        ('[[model]]\nname = "a"\n[[model]]\nname = "b"\nwindw = 3', r":5: unknown setting 'windw' of a model.*window"),
        ('[[model]]\nname = "a"\nwindow = 8\n[[model]]\nname = "b"\nwindow = -3', r":6: 'window' of a model"),
        ('[[model]]\nname = "a"\nroles = ["boss"]', r":3: 'roles.*: 'boss' is none of default, opus, .*review\.$"),
        (
            '[[model]]\nname = "a"\nroles = ["haiko"]',
            r":3: 'roles.*: 'haiko' is none of default.*review\. Did you mean haiku\?$",
        ),
        ('history_thinking = "keeps"', r":1: .*: 'keeps' is none of keep, model, drop\. Did you mean keep\?$"),
        ('[[model]]\nname = "a"\n[model.defaults]\ntop_p = 3', r":4: 'defaults.top_p' of a model"),
        ('[[model]]\nname = "a"\n[[model]]\nname = "b"\naliases = ["a"]', r":4: two models are called 'a'"),
        ('[[model]]\nname = "a"\nroles = ["opus"]\n[[model]]\nname = "b"\nroles = ["opus"]', r":6: two models.*'opus'"),
        (
            '[[model]]\nname = "small"\n[[model]]\nname = "b"\nfallbacks = ["smal"]',
            ":5: the fallback 'smal'.*small",
        ),
        ('[[model]]\nname = "a"\nengine = "x"\nengines = ["y"]', r":4: give 'engine' or 'engines'"),
        ('[[model]]\nname = "a"\nkey_env = "x"\nkey_file = "y"', r":4: give 'key_env' or 'key_file'"),
        ('engine = "embedded"\n[[model]]\nname = "a"', r":1 describes the one model.*:2 has"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(tmp_path: Path, content: str | None, message: str) -> None:
    config = written(tmp_path, content) if content is not None else str(tmp_path / "none.toml")
    with pytest.raises(SettingsError, match=f"(?s){message}"):
        load_settings({}, config=config, environ={})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TURNWIRE_PROT": "1"}, "TURNWIRE_PROT is not a setting. Did you mean TURNWIRE_PORT"),
        ({"TURNWIRE_PORT": "many"}, "TURNWIRE_PORT: 'port' has a wrong value"),
        ({"TURNWIRE_QUEUE": "-1"}, "TURNWIRE_QUEUE: 'queue' has a wrong value"),
        ({"TURNWIRE_MODELS": "x"}, "TURNWIRE_MODELS is not a setting"),
    ],
)
def test_a_wrong_variable_is_named(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_settings({}, config=None, environ=environ)


def test_a_wrong_flag_is_named() -> None:
    with pytest.raises(SettingsError, match=r"--port: 'port' has a wrong value"):
        load_settings({"port": 99_999}, config=None, environ={})


def test_several_models(tmp_path: Path) -> None:
    environ = {"TURNWIRE_SMALL_KEY": "sk-1", "TURNWIRE_URL": "http://x", "TURNWIRE_CONFIG": "y"}
    settings = load_settings({}, config=written(tmp_path, TWO_MODELS), environ=environ)
    big, small = settings.served()
    assert (big.name, big.roles, big.fallbacks, big.defaults.temperature) == (
        *("big", ("default", "opus"), ("small",)),
        0.2,
    )
    assert (small.aliases, small.key_env, small.window) == (("tiny",), "TURNWIRE_SMALL_KEY", 4096)
    with pytest.raises(SettingsError, match=r"--engine describes the one model"):
        load_settings({"engine": "embedded"}, config=written(tmp_path, TWO_MODELS), environ={})


def test_flags_are_enough_for_one_model() -> None:
    (model,) = load_settings({"model": "m", "engine": "vllm:a:1,vllm:b:1"}, config=None, environ={}).served()
    assert (model.name, model.specs) == ("m", ("vllm:a:1", "vllm:b:1"))


def test_every_setting_is_described() -> None:
    for kind in (Settings, ModelSettings):
        assert not [name for name, text in described(kind).items() if not text.endswith((".", "]"))]


def test_the_written_file_names_every_setting_and_changes_none(tmp_path: Path) -> None:
    text = commented_file()
    assert load_settings({}, config=written(tmp_path, text), environ={}) == Settings()
    head, _, tail = text.partition("# --- Several models")
    uncommented = "\n".join(line.removeprefix("#") if line[1:2] != " " else line for line in head.split("\n"))
    assert load_settings({}, config=written(tmp_path, uncommented), environ={}) == Settings()
    names = {field.name for field in msgspec.structs.fields(Settings)} - {"models", "tools"}
    assert {line.split(" =")[0] for line in uncommented.split("\n") if " = " in line and line[0] != "#"} == names
    assert set(GROUPS) <= names
    fields: list[Any] = list(msgspec.structs.fields(ModelSettings))
    assert all(f"#{field.name} = " in tail for field in fields)


def test_every_setting_is_a_flag_and_a_variable() -> None:
    names = {field.name for field in msgspec.structs.fields(Settings)} - {"models", "tools"}
    said = {
        *("--port=1", "--memory=5000000", "--keepalive=2.5", "--no-websocket", "--allow-urls", "--log-level=debug"),
        *("--cors-origins=http://a", "--cors-origins=http://b", "--window=9"),
    }
    context = serve.make_context("serve", sorted(said))
    assert names <= context.params.keys()
    loaded = load_settings(
        {key: value for key, value in context.params.items() if key != "config"}, config=None, environ={}
    )
    wanted = Settings(
        port=1,
        memory=5_000_000,
        keepalive=2.5,
        websocket=False,
        allow_urls=True,
        log_level="debug",
        cors_origins=("http://a", "http://b"),
        window=9,
    )
    assert loaded == wanted
    assert load({"websocket": False}, config=None, environ={}).origins == {"websocket": "--no-websocket"}
    assert load_settings({}, config=None, environ={"TURNWIRE_CORS_ORIGINS": "http://a,http://b"}).cors_origins == (
        "http://a",
        "http://b",
    )


def test_tools_are_tables(tmp_path: Path) -> None:
    file = tmp_path / "turnwire.toml"
    file.write_text('[tools.web_search]\nmcp = ["search"]\nmax-bytes = 99\n[tools.docs]\nmcp = "http://h/mcp"\n')
    tools = load_settings({}, config=str(file), environ={}).tools
    assert tools["web_search"].mcp == ("search",)
    assert tools["web_search"].max_bytes == 99
    assert tools["docs"].mcp == "http://h/mcp"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[tools.web_search]\ntool = 'x'\n", r"write \[tools.web_search\] with `mcp`"),
        (
            "[tools.web_search]\nmcp = 'http://h'\nmax_byte = 1\n",
            r":3: unknown setting 'max_byte'.*Did you mean max_bytes",
        ),
        ("[tools.web_search]\nmcp = 'http://h'\ntimeout = 0\n", r"'tools' has a wrong value"),
    ],
)
def test_wrong_tools_are_told(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "turnwire.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=words):
        load_settings({}, config=str(file), environ={})


def test_a_command_that_is_no_list_is_told() -> None:
    settings = Settings(tools={"web_search": ToolSettings(mcp="my-server")}, engine="scripted:x")
    assert any("must be an http address, or a command as a list" in problem for problem in problems(settings, {}))
