"""What doctor says: of ports, keys, servers, templates, and of a conversation really held."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.engines.recorded import RECORDED
from tests.gateway.setup.upstreams import HostedChat
from turnwire.gateway.settings import ModelSettings, Settings
from turnwire.gateway.setup.diagnosis import Finding, diagnose, template_findings
from turnwire.prompts.templates.traits import KeptThought, TemplateTraits

CALL = "<tool_call>\n<function=read_thermometer>\n<parameter=room>\nkitchen\n</parameter>\n</function>\n</tool_call>"


def scripted(folder: Path, *lines: str, **over: object) -> Settings:
    script = folder / "script.jsonl"
    script.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    fields = {"engine": f"scripted:{script}", "model": "m", "dialect": "qwen3_coder", "port": 0} | over
    return Settings(**fields)  # type: ignore[arg-type]


def of(findings: list[Finding], topic: str) -> list[Finding]:
    return [finding for finding in findings if finding.topic == topic]


@pytest.mark.parametrize(
    ("kept", "warned"), [(("tool_after",), True), (("tool_before", "text_before", "tool_after"), False)]
)
def test_a_template_is_warned_of_only_where_it_drops_thoughts(kept: tuple[KeptThought, ...], warned: bool) -> None:
    findings = template_findings(TemplateTraits(kept=kept, thinking_default=True))
    assert any("drops thoughts" in finding.text for finding in findings if finding.state == "warning") == warned


async def test_a_taken_port_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        (finding,) = of(await diagnose(scripted(tmp_path, "Hi", port=taken.getsockname()[1])), "port")
    assert (finding.state, "--port 0" in finding.fix) == ("error", True)


async def test_behind_a_server_only_what_is_used_is_judged() -> None:
    async with HostedChat(answers=RECORDED["ollama"]).running() as server:
        findings = await diagnose(Settings(engine=server.url.removesuffix("/v1"), port=0))
    assert {finding.topic for finding in findings} == {"keys", "engine", "images", "model", "prompts"}
    assert not [finding for finding in findings if finding.state == "error"]


@pytest.mark.parametrize(
    ("form", "state"), [("%H:%M:%S", "error"), ("%H:%M", "error"), ("%d %b %Y", "warning"), ("%%", None)]
)
async def test_a_clock_in_the_template_is_found(tmp_path: Path, form: str, state: str | None) -> None:
    template = tmp_path / "clock.jinja"
    template.write_text(
        "{{ '<|im_start|>system\nIt is ' + strftime_now('" + form + "') + '<|im_end|>\n' }}{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    findings = of(await diagnose(scripted(tmp_path, "Hi", template=str(template))), "template")
    found = [finding.state for finding in findings if "writes the" in finding.text]
    assert found == ([state] if state else [])


async def test_what_config_check_finds_is_found_before_anything_starts(tmp_path: Path) -> None:
    findings = await diagnose(scripted(tmp_path, "Hi", engine_key_env="NOT_SET_ANYWHERE"))
    (finding,) = of(findings, "settings")
    assert "NOT_SET_ANYWHERE" in finding.text


async def test_several_models_are_told_apart(tmp_path: Path) -> None:
    engine = scripted(tmp_path, "Hi").engine
    models = tuple(ModelSettings(name=name, engine=engine, dialect="qwen3_coder") for name in ("a", "b"))
    findings = await diagnose(Settings(port=0, models=models))
    assert {finding.model for finding in of(findings, "engine")} == {"a", "b"}
    assert [finding.text for finding in of(findings, "model")] == ["no profile; defaults hold"] * 2


async def test_a_conversation_is_really_held(tmp_path: Path) -> None:
    held = of(await diagnose(scripted(tmp_path, CALL, "It is 21.5 degrees."), trial=True), "trial")
    assert [(finding.state, finding.text.split(";")[:2]) for finding in held] == [
        ("fine", ["called the tool and answered", " prefix held"])
    ]
    silent = of(await diagnose(scripted(tmp_path, "I do not know."), trial=True), "trial")
    assert [(finding.state, "instead of calling" in finding.text) for finding in silent] == [("warning", True)]
