"""The page of judged servers is the result file's."""

from __future__ import annotations

import pytest
from benchmarks.commands.conformance import FILE, PAGE, page, read
from benchmarks.peers.servers import SERVERS

from turnwire.conformance.rules.table import RULES


def test_the_page_is_made_from_the_result_file() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, read()) == text, "run: python -m benchmarks conformance --page"


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_is_judged_by_every_rule_or_said_to_be_missing(name: str) -> None:
    results = read()
    assert (name in results.reports) != (name in results.missing)
    if name in results.reports:
        cells = results.reports[name].cells
        assert sorted((cell.rule, cell.api) for cell in cells) == sorted(
            (rule.name, api) for rule in RULES for api in rule.apis
        )


def test_no_path_of_a_machine_is_in_the_file() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert "/root/" not in text
    assert "/home/" not in text
