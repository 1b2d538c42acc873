"""`turnwire parse --jsonl`: every row is answered, a bad one with its error, and null means a stage is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from turnwire.cli.parse import parse

CALL = '<think>a</think>b<tool_call>{"name": "ls"}</tool_call>'


def answers(tmp_path: Path, rows: list[Any]) -> tuple[list[dict[str, Any]], int, str]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    shown = CliRunner().invoke(parse, ["--jsonl", str(path)])
    return [json.loads(line) for line in shown.stdout.splitlines()], shown.exit_code, shown.stderr


def test_a_bad_row_is_reported_and_the_others_are_answered(tmp_path):
    good = {"id": "good", "dialect": "hermes", "text": "hi"}
    bad = [
        {"id": "name", "dialect": "hermez", "text": "x"},
        {"id": "none", "text": "x"},
        {"id": "text", "dialect": "hermes", "text": 5},
        {"id": "cut", "dialect": "hermes", "text": "x", "cut": 0},
        {"id": "start", "dialect": "hermes", "text": "x", "start": "middle"},
        {"id": "finish", "dialect": "hermes", "text": "x", "finish": "later"},
        "[1, 2]",
        "not json",
    ]
    shown, status, said = answers(tmp_path, [bad[0], good, *bad[1:], good])
    assert [row["id"] for row in shown] == ["name", "good", "none", "text", "cut", "start", "finish", 8, 9, "good"]
    assert [row["id"] for row in shown if "error" not in row] == ["good", "good"]
    assert "did you mean hermes" in shown[0]["error"]
    assert status == 1
    assert "8 of 10 rows" in said


def test_rows_that_all_can_be_read_end_well(tmp_path):
    assert answers(tmp_path, [{"dialect": "hermes", "text": "hi"}])[1:] == (0, "")


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({}, ["reasoning", "text", "tool_call"]),
        ({"reasoning": None}, ["text", "tool_call"]),
        ({"tool": None}, ["reasoning", "text"]),
        ({"tool": None, "reasoning": None}, ["text"]),
        ({"parser_reasoning": None, "parser_tool": "hermes"}, ["text", "tool_call"]),
    ],
)
def test_null_means_that_a_stage_is_not_exercised(tmp_path, fields, kinds):
    (row,), _, _ = answers(tmp_path, [{"dialect": "hermes", "text": CALL, "start": "content", **fields}])
    assert [block["type"] for block in row["blocks"]] == kinds


@pytest.mark.parametrize("name", ["cohere_thinking", "cohere_action"])
def test_the_names_of_cohere_s_stages_are_known(tmp_path, name):
    (row,), status, _ = answers(tmp_path, [{"dialect": name, "text": "<|START_RESPONSE|>hi<|END_RESPONSE|>"}])
    assert (row["blocks"][0]["text"], status) == ("hi", 0)
