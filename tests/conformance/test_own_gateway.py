"""Our own gateway keeps every rule on every API, and says why."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tests.conformance.listening import listening_gateway
from turnwire.conformance.page import html_page, markdown
from turnwire.conformance.rules.table import RULES
from turnwire.conformance.runner import run
from turnwire.conformance.words import APIS, Report

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def report(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Report]:
    async with listening_gateway(tmp_path_factory.mktemp("gateway")) as (url, stand_in):
        yield await run(url, stand_in=stand_in)


@pytest.mark.parametrize("api", APIS)
async def test_every_rule_is_kept(report: Report, api: str) -> None:
    found = {cell.rule: (cell.word, cell.reason, cell.evidence) for cell in report.cells if cell.api == api}
    assert set(found) == {rule.name for rule in RULES if api in rule.apis}
    assert {rule: told for rule, told in found.items() if told[0] != "preserved"} == {}


async def test_every_cell_has_a_reason_and_evidence(report: Report) -> None:
    assert [cell.rule for cell in report.cells if not cell.reason or not cell.evidence] == []


async def test_a_report_is_read_back_as_it_was_written(report: Report) -> None:
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report


async def test_the_tables_have_a_row_for_each_rule(report: Report, tmp_path: Path) -> None:
    named = msgspec.structs.replace(report, server="Ours <b>")
    assert markdown([named, named]).count("\n") == len(RULES) + 1
    page = html_page([named])
    assert page.count("<details>") == len(report.cells)
    assert "Ours &lt;b&gt;" in page
    assert "<b>" not in page
