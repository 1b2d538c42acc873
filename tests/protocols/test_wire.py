"""What every API's codec shares with the gateway."""

from __future__ import annotations

from turnwire.protocols.wire import Inbound
from turnwire.turns import Conversation, Sampling


def inbound(seed: int | None) -> Inbound[None]:
    conversation = Conversation(model="m", messages=(), sampling=Sampling(seed=seed, temperature=1.5))
    return Inbound(conversation=conversation, stream=False, echo=None, choices=3)


def test_each_choice_has_a_seed_of_its_own() -> None:
    asked = inbound(42)
    choices = [asked.choice(number).conversation.sampling for number in range(3)]
    assert [sampling.seed for sampling in choices] == [42, 43, 44]
    assert {sampling.temperature for sampling in choices} == {1.5}
    assert asked.choice(0) is asked


def test_choices_without_a_seed_are_the_request_itself() -> None:
    asked = inbound(None)
    assert all(asked.choice(number) is asked for number in range(3))
