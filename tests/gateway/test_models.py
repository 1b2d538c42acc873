"""Which model a request means."""

from __future__ import annotations

import msgspec
import pytest

from turnwire.gateway.models import ServedModels, UnknownModel


class Model(msgspec.Struct, eq=False):
    id: str
    aliases: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    usable: bool = True


BIG = Model("maker/big", aliases=("big", "gpt-5"), roles=("opus",), fallbacks=("small", "spare"))
SMALL = Model("small", roles=("haiku", "background", "review"), fallbacks=("spare",))
SPARE = Model("spare", roles=("default",))
MODELS = ServedModels([BIG, SMALL, SPARE])


@pytest.mark.parametrize(
    ("name", "turn_class", "model", "how", "codes"),
    [
        ("maker/big", None, BIG, "id", []),
        ("big", None, BIG, "alias", []),
        ("gpt-5[1m]", None, BIG, "alias", []),
        ("claude-big", None, BIG, "alias", []),
        ("anthropic/small", None, SMALL, "alias", []),
        ("claude-opus-5-5", None, BIG, "role", []),
        ("claude-opus-5-5[1m]", "main", BIG, "role", []),
        ("opus", None, BIG, "role", []),
        ("anthropic/claude-3-5-haiku-20241022", None, SMALL, "role", []),
        ("codex-auto-review", None, SMALL, "role", []),
        ("claude-sonnet-5", None, SPARE, "default", ["model.default"]),
        ("default", None, SPARE, "default", []),
        ("", None, SPARE, "default", []),
        (None, None, SPARE, "default", []),
        ("maker/big", "title", SMALL, "role", ["model.role"]),
        ("maker/big", "subagent", BIG, "id", []),
        ("small", "background", SMALL, "id", []),
    ],
)
def test_a_name_finds_its_model(
    name: str | None, turn_class: str | None, model: Model, how: str, codes: list[str]
) -> None:
    found = MODELS.find(name, turn_class)
    assert (found.model, found.how, [note.code for note in found.notes]) == (model, how, codes)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(
        UnknownModel, match=r"'smal' is not served here\. Did you mean small\? Served: maker/big, small"
    ):
        MODELS.find("smal")


def test_the_first_usable_fallback_answers_and_says_so() -> None:
    big = Model("big", fallbacks=("small", "spare"), usable=False)
    small, spare = Model("small", usable=False), Model("spare")
    models = ServedModels([big, small, spare])
    found = models.find("big")
    assert (found.model, found.how, [note.code for note in found.notes]) == (spare, "fallback", ["model.fallback"])
    assert "spare answers for big" in found.notes[0].message
    small.usable = True
    assert models.find("big").model is small
    big.usable = True
    assert models.find("big").model is big
    big.usable = small.usable = spare.usable = False
    assert models.find("big").model is big, "with nobody left, the model itself says what is wrong"


def test_names_that_collide_are_refused() -> None:
    for models, words in (
        ([Model("a"), Model("a")], "id 'a'"),
        ([Model("a"), Model("b", aliases=("a",))], "alias 'a'"),
        ([Model("a", roles=("opus",)), Model("b", roles=("opus",))], "role 'opus'"),
        ([Model("a", fallbacks=("c",))], "fallback 'c'"),
        ([], "at least one"),
    ):
        with pytest.raises(ValueError, match=words):
            ServedModels(models)
