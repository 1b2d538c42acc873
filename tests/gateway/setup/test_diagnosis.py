"""What doctor says of a template."""

from __future__ import annotations

import pytest

from turnwire.gateway.setup.diagnosis import template_findings
from turnwire.prompts.templates.traits import KeptThought, TemplateTraits


@pytest.mark.parametrize(
    ("kept", "warned"), [(("tool_after",), True), (("tool_before", "text_before", "tool_after"), False)]
)
def test_a_template_is_warned_of_only_where_it_drops_thoughts(kept: tuple[KeptThought, ...], warned: bool) -> None:
    findings = template_findings(TemplateTraits(kept=kept, thinking_default=True))
    assert any("drops thoughts" in finding.text for finding in findings if finding.state == "warning") == warned
