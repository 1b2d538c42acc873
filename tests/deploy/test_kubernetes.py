"""The manifests: each object fits its API's schema, and they agree with each other, with the settings and the metrics.

The schemas are Kubernetes' own (kubernetes-validate). PodMonitor and Kustomization are not in them: of those only what
is asserted here is checked.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from turnwire.gateway.routes import access_of
from turnwire.gateway.setup.loading import load_settings
from turnwire.gateway.telemetry.metrics import Metrics

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
OBJECTS: list[dict[str, Any]] = [
    each for path in FILES for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
ELSEWHERE = {"PodMonitor"}


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pod(kind: str, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = named(kind, name)["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_an_object_fits_the_schema_of_its_kind(each: dict[str, Any]) -> None:
    if each["kind"] in ELSEWHERE:
        with pytest.raises(kubernetes_validate.SchemaNotFoundError):
            kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
        return
    kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_a_slip_of_the_pen_is_found() -> None:
    wrong = {**named("Service", "turnwire"), "spec": {"selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, kubernetes_validate.latest_version(), strict=True)


def test_every_file_is_applied() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    assert sorted(listed["resources"]) == [path.name for path in FILES]


def test_selectors_find_their_pods() -> None:
    for kind in ("Deployment", "StatefulSet"):
        for each in (each for each in OBJECTS if each["kind"] == kind):
            wanted = each["spec"]["selector"]["matchLabels"]
            assert wanted == each["spec"]["template"]["metadata"]["labels"]
            service = named("Service", each["metadata"]["name"])
            assert service["spec"]["selector"] == wanted
            ports = {port["name"] for port in each["spec"]["template"]["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    labels = pod("Deployment", "turnwire") and named("Deployment", "turnwire")["spec"]["selector"]
    assert named("PodDisruptionBudget", "turnwire")["spec"]["selector"] == labels
    assert named("PodMonitor", "turnwire")["spec"]["selector"] == labels


def test_the_gateway_runs_with_these_settings(tmp_path: Path) -> None:
    config = named("ConfigMap", "turnwire")["data"]["turnwire.toml"]
    file = tmp_path / "turnwire.toml"
    file.write_text(config, encoding="utf-8")
    spec = pod("Deployment", "turnwire")
    (container,) = spec["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    settings = load_settings({}, config=str(file), environ=environment)
    assert settings.port == container["ports"][0]["containerPort"]
    assert settings.store == tomllib.loads(config)["store"]
    assert settings.store.startswith("redis://redis:6379")
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert settings.drain_timeout + pause < spec["terminationGracePeriodSeconds"]
    # Every engine is a pod of the set, under its own name.
    engines = named("StatefulSet", "vllm")
    wanted = {f"vllm:http://vllm-{number}.vllm:8000" for number in range(engines["spec"]["replicas"])}
    assert set(settings.models[0].engines) == wanted
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for path in (settings.keys, settings.seal_key_file):
        assert path is not None
        assert str(Path(path).parent) in mounts


def test_probes_and_scrapes_ask_for_what_is_served() -> None:
    (container,) = pod("Deployment", "turnwire")["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert access_of(container[probe]["httpGet"]["path"]) == "open"
    (endpoint,) = named("PodMonitor", "turnwire")["spec"]["podMetricsEndpoints"]
    assert access_of(endpoint["path"]) == "admin"
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    (metric,) = named("HorizontalPodAutoscaler", "turnwire")["spec"]["metrics"]
    assert f"\n{metric['pods']['metric']['name']} " in Metrics().page().decode()


def test_pods_may_do_little() -> None:
    for kind, name in (("Deployment", "turnwire"), ("StatefulSet", "redis")):
        spec = pod(kind, name)
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    for name in ("redis", "vllm"):
        (rule,) = named("NetworkPolicy", name)["spec"]["ingress"]
        assert rule["from"] == [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "turnwire"}}}]
