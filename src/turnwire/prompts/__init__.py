"""Conversation to prompt tokens: templates, tokenizers, stability, replay, seals."""

from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.notes import NOTES
from turnwire.prompts.policy import ReplayPolicy
from turnwire.prompts.prompt import Detokenizer, Prompt, Recall, RecalledTurn, Section, Tokenizer
from turnwire.prompts.stability import StabilityOptions
from turnwire.prompts.templates.encodings import DeepSeekEncoding, HarmonyEncoding
from turnwire.prompts.templates.probing.probe import probe
from turnwire.prompts.templates.template import ChatTemplate, Renderer, TemplateFailure, default_template
from turnwire.prompts.templates.traits import TemplateTraits, TurnEnds

__all__ = [
    "NOTES",
    "ChatTemplate",
    "DeepSeekEncoding",
    "Detokenizer",
    "HarmonyEncoding",
    "Prompt",
    "PromptBuilder",
    "Recall",
    "RecalledTurn",
    "Renderer",
    "ReplayPolicy",
    "Section",
    "StabilityOptions",
    "TemplateFailure",
    "TemplateTraits",
    "Tokenizer",
    "TurnEnds",
    "default_template",
    "probe",
]
