"""The Grafana dashboard asks for metrics and labels that exist, and metrics stay bounded."""

from __future__ import annotations

import json
import re
from pathlib import Path

from turnwire.gateway.telemetry.metrics import Metrics

from .conftest import Serve

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "turnwire.json"
BODY = {"model": "test-model", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi."}]}


def _known() -> dict[str, set[str]]:
    """Every metric's name as a scraper sees it, with its labels."""
    known: dict[str, set[str]] = {}
    for family in Metrics()._registry._collector_to_names:
        labels = set(getattr(family, "_labelnames", ()))
        for name in Metrics()._registry._get_names(family):
            known.setdefault(name, set()).update(labels)
    page = Metrics().page().decode()
    return known | {name: set() for name in re.findall(r"^(process_\w+)", page, re.MULTILINE)}


def test_every_query_asks_for_what_there_is() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    known = _known()
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    assert len(queries) > 20
    for query in queries:
        names = re.findall(r"\b(?:turnwire|process)_[a-z_]+\b", query)
        assert names, query
        for name in names:
            assert name in known, f"{name} in {query}"
            if name.startswith("turnwire_"):
                asked = set(re.findall(r"(\w+)(?:=~|!=|=)\"", query)) | {
                    label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")
                }
                assert asked - known[name] - {"le", "instance"} == set(), query
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(places)) == len(places)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in board["panels"])


async def test_the_process_and_its_tenants_are_measured(serve: Serve) -> None:
    client = await serve({"text": "Hm.\n</think>\n\nHi."})
    await client.post("/v1/messages", BODY)
    async with client.session.get(client.base + "/metrics") as answer:
        page = await answer.text()
    assert re.search(r"^process_resident_memory_bytes [1-9]", page, re.MULTILINE)
    assert re.search(r"^process_cpu_seconds_total [0-9]", page, re.MULTILINE)
    labels = 'kind="prompt",model="test-model",tenant="default"'
    assert re.search(rf"^turnwire_tenant_tokens_total{{{labels}}} [1-9]", page, re.MULTILINE)


def test_the_number_of_tenants_is_bounded() -> None:
    metrics = Metrics()
    shown = {metrics._tenant(f"tenant-{number}") for number in range(500)}
    assert len(shown) == 101
    assert "other" in shown
    assert metrics._tenant("tenant-0") == "tenant-0"
