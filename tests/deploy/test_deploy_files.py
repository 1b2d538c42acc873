"""The files for deployment, without a daemon to run them: they parse, they agree with each other and with the settings.

The steps of the image are run by hand in `tools/image_steps.py`, which needs a package index.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from turnwire.gateway.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
NAMES = {field.name for field in msgspec.structs.fields(Settings)}


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def loaded(name: str) -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / name).read_text())


def test_the_image_is_built_in_two_stages_and_runs_as_nobody_special() -> None:
    steps = dockerfile()
    stages = [rest for word, rest in steps if word == "FROM"]
    assert len(stages) == 2
    last = steps[max(at for at, (word, _) in enumerate(steps) if word == "FROM") :]
    words = dict(last)
    assert words["USER"] == "10001:10001"
    assert "pip" not in " ".join(rest for word, rest in last if word == "RUN")
    assert "/ready" in words["HEALTHCHECK"]
    assert json.loads(words["ENTRYPOINT"]) == ["turnwire"]
    assert "--require-hashes" in " ".join(rest for word, rest in steps if word == "RUN")


def test_what_the_image_copies_is_let_through_to_the_build() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        source
        for word, rest in dockerfile()
        if word == "COPY" and "--from" not in rest
        for source in shlex.split(rest)[:-1]
    ]
    assert set(copied) == allowed
    assert all((ROOT / source).exists() for source in copied)


def test_every_variable_is_a_setting() -> None:
    image = re.findall(r"TURNWIRE_([A-Z_]+)=", next(rest for word, rest in dockerfile() if word == "ENV"))
    composed = [
        name.removeprefix("TURNWIRE_")
        for file in ("compose.yaml", "compose.vllm.yaml")
        for name in loaded(file)["services"]["turnwire"]["environment"]
        if name.startswith("TURNWIRE_")
    ]
    assert len(image) >= 4
    assert {name.lower() for name in [*image, *composed]} <= NAMES


def test_the_services_find_each_other() -> None:
    services = loaded("compose.yaml")["services"] | {"vllm": loaded("compose.vllm.yaml")["services"]["vllm"]}
    (job,) = loaded("prometheus/prometheus.yml")["scrape_configs"]
    (source,) = loaded("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    engine = loaded("compose.vllm.yaml")["services"]["turnwire"]["environment"]["TURNWIRE_ENGINE"]
    named = [job["static_configs"][0]["targets"][0], source["url"], engine.removeprefix("vllm:")]
    assert [re.sub(r"^http://", "", url).partition(":")[0] for url in named] == ["turnwire", "prometheus", "vllm"]
    for name, service in services.items():
        for after in service.get("depends_on", ()):
            assert after in services, name
        for mount in service.get("volumes", ()):
            if mount.startswith("."):
                assert (DEPLOY / mount.partition(":")[0]).exists(), mount
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), f"{name} is open to other machines"


def test_compose_itself_accepts_the_files() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        pytest.skip("docker compose is not installed; the compose files were only parsed")
    files = ["-f", str(DEPLOY / "compose.yaml"), "-f", str(DEPLOY / "compose.vllm.yaml")]
    ran = subprocess.run([docker, "compose", *files, "config", "--quiet"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_unit_and_its_config_agree() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "turnwire.service")
    assert unit["Service"]["ExecStart"].endswith("turnwire serve --config /etc/turnwire/turnwire.toml")
    settings = tomllib.loads((DEPLOY / "turnwire.toml").read_text())
    assert set(settings) - {"model"} <= NAMES
    kept = [settings[name].removeprefix("sqlite:") for name in ("store", "seal_key_file", "usage")]
    assert all(path.startswith("/var/lib/turnwire/") for path in kept)
    drain = msgspec.structs.fields(Settings)
    default = next(field.default for field in drain if field.name == "drain_timeout")
    assert int(unit["Service"]["TimeoutStopSec"]) > default


def test_systemd_accepts_the_unit() -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed; the unit was only parsed")
    ran = subprocess.run([verify, "verify", str(DEPLOY / "turnwire.service")], capture_output=True, text=True)
    complaints = [line for line in ran.stderr.splitlines() if "is not executable" not in line and "turnwire" in line]
    assert complaints == []


def test_the_lock_files_name_everything_that_is_asked_for() -> None:
    ran = subprocess.run(["python3", "tools/lock.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
