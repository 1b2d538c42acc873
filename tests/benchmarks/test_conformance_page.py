"""The page of judged servers is the result file's."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.commands.conformance import FILE, PAGE, Results, page, read, why_missing
from benchmarks.peers.servers import SERVERS

from turnwire.conformance.rules.table import CLIENT_RULES, RULES


def test_the_page_is_made_from_the_result_file() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, read()) == text, "run: python -m benchmarks conformance --page"


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_is_judged_by_every_rule_or_said_to_be_missing(name: str) -> None:
    results = read()
    assert (name in results.reports) != (name in results.missing)
    if name in results.reports:
        cells = [(cell.rule, cell.api) for cell in results.reports[name].cells]
        # Real clients are judged where they are installed.
        table = (*RULES, *CLIENT_RULES) if results.clients else RULES
        assert sorted(cells) == sorted((rule.name, api) for rule in table for api in rule.apis)


def test_no_path_of_a_machine_is_in_the_file() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert "/root/" not in text
    assert "/home/" not in text


def test_a_server_that_did_not_start_is_a_row() -> None:
    found = Results("2026-01-02", {}, {"smg": "not ready after 90 s"})
    assert "| smg | – | – | not judged: not ready after 90 s |" in page(PAGE.read_text(encoding="utf-8"), found)
    assert "in several runs" in page(PAGE.read_text(encoding="utf-8"), found)


def test_why_a_server_is_missing_names_no_folder() -> None:
    assert why_missing(RuntimeError(f"{Path.home()}/x ended with 1\nmore")) == "…/x ended with 1"
    assert why_missing(TimeoutError()) == "TimeoutError"
