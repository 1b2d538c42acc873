"""Every field of every request that is known here, and what becomes of it.

Promise: the decoders can read a field only if it has a row here, and say of every other field that it is ignored; the
tables in docs/ are printed from this one. A row with a dot is a member of an object (`nvext.agent_hints.priority`); an
object that has such rows has its other members noted, one without is free in form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "DETOKENIZE",
    "EMBEDDINGS",
    "MESSAGES",
    "RESPONSES",
    "TABLES",
    "TOKENIZE",
    "Field",
    "FieldTable",
]

Use: TypeAlias = Literal["honoured", "echoed", "noted", "refused", "accepted"]
"""honoured: it shapes the turn or its answer. echoed: it is repeated in the answer, and noted. noted: it is ignored,
with a note. refused: the request is answered with an error that says what to do instead. accepted: it asks for nothing
that a server could do or leave undone, so there is nothing to note."""


class Field(msgspec.Struct, frozen=True):
    """What becomes of a field, and why. `quiet` are values that ask for nothing, of which there is nothing to note."""

    use: Use
    about: str
    quiet: tuple[Any, ...] = ()


FieldTable: TypeAlias = Mapping[str, Field]


def _honoured(**about: str) -> dict[str, Field]:
    return {name: Field("honoured", text) for name, text in about.items()}


_NVEXT: FieldTable = {
    "nvext": Field("honoured", "extensions of NVIDIA Dynamo; each member has a row"),
    "nvext.agent_hints": Field("honoured", "who waits for this turn"),
    "nvext.agent_hints.priority": Field("honoured", "higher is served earlier within its tier, within ±100"),
    "nvext.agent_hints.strict_priority": Field(
        "honoured", "waiting turns of a higher tier go first; engines are not informed"
    ),
    "nvext.agent_hints.latency_sensitivity": Field(
        "honoured", "above 0 a quick start weighs more than a cached prefix; as `priority` where that is absent"
    ),
    "nvext.agent_hints.osl": Field("honoured", "the expected length of the answer, for the load of workers"),
    "nvext.agent_hints.speculative_prefill": Field(
        "honoured", "an idle worker reads the next prompt ahead, where the gateway's setting allows it"
    ),
    "nvext.max_thinking_tokens": Field("honoured", "bounds the thought, as `thinking.budget_tokens` does"),
    "nvext.greed_sampling": Field("honoured", "true samples at temperature 0"),
    "nvext.dispatch": Field("honoured", "opts in to `tool_call_dispatch`"),
    "nvext.annotations": Field(
        "honoured", "request_id, formatted_prompt and token_ids, each an event with a comment at the head of a stream"
    ),
    "nvext.extra_fields": Field(
        "honoured", "worker_id, timing, stop_reason, completion_token_ids and notes, in the answer's `nvext`"
    ),
    "nvext.cache_salt": Field("honoured", "separates the engine's cache further, within the tenant's"),
    "nvext.use_raw_prompt": Field("noted", "the template is always applied; use /v1/completions", (False,)),
    "nvext.token_data": Field("noted", "prompts are tokenized here; use /v1/completions for token ids"),
    "nvext.backend_instance_id": Field(
        "honoured", "the worker with this number (see `worker_id` of `extra_fields`), while it takes turns"
    ),
    "nvext.prefill_worker_id": Field("noted", "prompts are read where the answer is written"),
    "nvext.decode_worker_id": Field("honoured", "as `backend_instance_id`, where that is absent"),
    "nvext.dp_rank": Field("noted", "workers are chosen here"),
    "nvext.prefill_dp_rank": Field("noted", "workers are chosen here"),
    "nvext.routing_constraints": Field("noted", "workers are chosen here"),
    "nvext.router": Field("noted", "workers are chosen here"),
    "nvext.metadata_upload": Field("noted", "nothing is uploaded"),
    "nvext.request_timestamp_ms": Field("accepted", "says when the client sent the request"),
    "nvext.agent_context": Field("noted", "sessions are named by headers"),
    "nvext.session_control": Field("noted", "sessions are named by headers"),
}

_FORMAT: FieldTable = {
    "type": Field("honoured", "text, json_object or json_schema"),
    "name": Field("honoured", "of the schema"),
    "schema": Field("honoured", "what the answer keeps to, where the engine is guided"),
    "strict": Field("honoured", "an answer that does not keep to the schema is noted"),
    "description": Field("accepted", "the schema says what is wanted"),
}

_SALT: FieldTable = {"cache_salt": Field("honoured", "as `nvext.cache_salt`, where that is absent")}

_SAMPLING: FieldTable = _honoured(
    temperature="0 to 2",
    top_p="0 to 1",
    top_k="a whole number from -1",
    min_p="0 to 1",
    presence_penalty="-2 to 2",
    frequency_penalty="-2 to 2",
    repetition_penalty="0 to 10",
    seed="a whole number",
)

_WHO = Field("accepted", "names the caller; keys and headers decide that here")

MESSAGES: FieldTable = {
    **_honoured(
        model="names a served model; the default one where absent",
        messages="the conversation",
        system="the system prompt; billing lines are left out",
        tools="tools that the client runs are offered, and hosted ones that the gateway runs; others are left out",
        tool_choice="auto, any, tool or none; `disable_parallel_tool_use` ends the turn after its first call",
        max_tokens="cut to what fits in the window",
        stop_sequences="matched in the answer; the one that matched is `stop_sequence`",
        stream="server-sent events or one document",
        thinking="on, off, adaptive; `budget_tokens` bounds the thought; `display: omitted` hides it",
        context_management="clears old thoughts and tool results",
        output_config="`effort` and `format`",
        output_format="the older place of `output_config.format`",
        metadata="`user_id` may name the session",
        thread="continues a stored conversation",
        diagnostics="why the cached prefix was not used",
        chat_template_kwargs="passed to the chat template",
    ),
    **_SAMPLING,
    "thinking.type": Field("honoured", "enabled, adaptive or disabled"),
    "thinking.budget_tokens": Field("honoured", "bounds the thought"),
    "thinking.display": Field("honoured", "omitted hides the thought"),
    "output_config.effort": Field("honoured", "how much to think"),
    "output_config.format": Field("honoured", "as `output_format`"),
    "output_config.task_budget": Field("noted", "answers are bounded one by one"),
    **{f"output_config.format.{name}": row for name, row in _FORMAT.items()},
    **{f"output_format.{name}": row for name, row in _FORMAT.items()},
    "context_management.edits": Field("honoured", "what is cleared"),
    "tool_choice.type": Field("honoured", "auto, any, tool or none"),
    "tool_choice.name": Field("honoured", "the tool that must be called"),
    "tool_choice.disable_parallel_tool_use": Field("honoured", "ends the turn after its first call"),
    **_NVEXT,
    **_SALT,
    "cache_control": Field("accepted", "prefixes are cached without marks"),
    "betas": Field("accepted", "opt-ins of the client; no answer depends on them"),
    "anthropic_version": Field("accepted", "said in the header as well"),
    "anthropic_beta": Field("accepted", "said in the header as well"),
    "user_profile_id": _WHO,
    "workspace_id": _WHO,
    "container": Field("noted", "there are no containers; code runs at the operator's server, if at all"),
    "mcp_servers": Field("noted", "only servers of the operator's are called: name them in `mcp_toolset` tools"),
    "service_tier": Field("noted", "there is one tier", ("auto", "standard_only")),
    "inference_geo": Field("noted", "there is one place"),
    "speed": Field("noted", "there is one speed", ("standard",)),
    "fallbacks": Field("noted", "no other model takes over"),
    "fallback_credit_token": Field("noted", "no other model takes over"),
    "safeguards": Field("noted", "no classifier runs here"),
    "compaction": Field("refused", "compaction on request is not offered; ask for a summary in a message instead"),
}

CHAT: FieldTable = {
    **_honoured(
        model="names a served model; the default one where absent",
        messages="the conversation; thoughts are read in every common spelling",
        tools="functions and custom tools are offered; hosted ones are left out with a note",
        functions="the older form of `tools`",
        tool_choice="auto, none, required or a named tool",
        function_call="the older form of `tool_choice`",
        parallel_tool_calls="false ends the turn after its first call",
        response_format="text, json_object or json_schema",
        n="several choices, generated side by side",
        logprobs="log probabilities of the answer's tokens",
        top_logprobs="0 to 20 rivals per token; needs `logprobs`",
        logit_bias="token ids to -100 to 100",
        stop="matched in the prose of the answer; with `logprobs` by the engine, in all that it writes",
        stream="server-sent events or one document",
        stream_options="`include_usage` ends a stream with the counts; needs `stream`",
        max_tokens="cut to what fits in the window",
        max_completion_tokens="goes before `max_tokens`",
        reasoning_effort="none turns thinking off",
        reasoning="`effort`, `enabled`, `max_tokens` (the thought's budget), `exclude`",
        thinking="`type: disabled` turns thinking off; `budget_tokens` bounds it",
        enable_thinking="true or false",
        chat_template_kwargs="passed to the chat template",
        turnwire="`dispatch` opts in to `tool_call_dispatch`",
        prompt_cache_key="names the session where no header does",
        metadata="at most 16 texts; kept nowhere",
    ),
    **_SAMPLING,
    "thinking.type": Field("honoured", "disabled turns thinking off"),
    "thinking.budget_tokens": Field("honoured", "bounds the thought"),
    "response_format.type": Field("honoured", "text, json_object or json_schema"),
    "response_format.json_schema": Field("honoured", "the schema with its name"),
    **{f"response_format.json_schema.{name}": row for name, row in _FORMAT.items() if name != "type"},
    "tool_choice.type": Field("honoured", "function, custom or allowed_tools"),
    "tool_choice.function": Field("honoured", "the tool that must be called"),
    "tool_choice.custom": Field("honoured", "the tool that must be called"),
    "tool_choice.name": Field("honoured", "the tool that must be called"),
    "tool_choice.allowed_tools": Field("honoured", "only these are shown"),
    **_NVEXT,
    **_SALT,
    "reasoning.effort": Field("honoured", "as `reasoning_effort`"),
    "reasoning.enabled": Field("honoured", "true or false"),
    "reasoning.max_tokens": Field("honoured", "bounds the thought"),
    "reasoning.exclude": Field("noted", "thoughts are always sent; clients need them for the next turn", (False,)),
    "reasoning.summary": Field("noted", "thoughts are sent whole", ("auto", "detailed")),
    "stream_options.include_usage": Field("honoured", "ends a stream with the counts"),
    "stream_options.continuous_usage_stats": Field("noted", "counts come at the end", (False,)),
    "stream_options.include_obfuscation": Field("noted", "chunks are not padded", (False,)),
    "turnwire.dispatch": Field("honoured", "true, false or delta"),
    "user": _WHO,
    "safety_identifier": _WHO,
    "store": Field("noted", "chat completions are not stored; use /v1/responses", (False,)),
    "service_tier": Field("noted", "there is one tier", ("auto", "default")),
    "verbosity": Field("noted", "say in the prompt how long the answer should be", ("medium",)),
    "modalities": Field("noted", "answers are text", (["text"],)),
    "audio": Field("noted", "answers are text"),
    "prediction": Field("noted", "the answer is generated without a draft"),
    "web_search_options": Field("noted", "there is no web search here; the model answers from what it knows"),
    "prompt_cache_retention": Field("noted", "the engine decides how long a prefix is kept", ("in_memory",)),
    "prompt_cache_options": Field("noted", "prefixes are cached without options"),
    "moderation": Field("noted", "nothing is moderated here"),
    "include_reasoning": Field("noted", "thoughts are always sent; clients need them for the next turn", (True,)),
}

RESPONSES: FieldTable = {
    **_honoured(
        model="names a served model; the default one where absent",
        input="the items; outputs of tools must answer a call that is there",
        instructions="the leading developer message",
        tools="functions, custom tools, namespaces, tool search, and what the gateway runs; else left out with a note",
        tool_choice="auto, none, required, a named tool or allowed_tools",
        parallel_tool_calls="false ends the turn after its first call",
        max_output_tokens="cut to what fits in the window",
        reasoning="`effort`, `summary` and `context`",
        text="`format`; `verbosity` is echoed",
        include="reasoning.encrypted_content",
        store="false keeps nothing",
        background="runs without a client; needs `store`",
        stream="server-sent events or one document",
        previous_response_id="continues a stored response that is finished",
        prompt_cache_key="names the session where no header does",
        prompt_cache_options="`comparison_response_id` asks why the cached prefix was not used",
        service_tier="priority and fast are served earlier, flex later",
        metadata="at most 16 texts of 512 characters; repeated in the response",
        client_metadata="Codex's headers, where a connection has only one set of them",
        chat_template_kwargs="passed to the chat template",
        stop="matched in the answer",
        generate="false builds the prompt and generates nothing (WebSocket)",
        type="response.create (WebSocket)",
    ),
    **_SAMPLING,
    **{f"text.format.{name}": row for name, row in _FORMAT.items()},
    "prompt_cache_options.comparison_response_id": Field("honoured", "asks why the cached prefix was not used"),
    "tool_choice.type": Field("honoured", "what is chosen"),
    "tool_choice.name": Field("honoured", "the tool that must be called"),
    "tool_choice.namespace": Field("honoured", "the namespace of that tool"),
    "tool_choice.server_label": Field("honoured", "the MCP server of that tool"),
    "tool_choice.mode": Field("honoured", "auto or required, with `allowed_tools`"),
    "tool_choice.tools": Field("honoured", "only these are shown"),
    **_NVEXT,
    **_SALT,
    "reasoning.effort": Field("honoured", "none turns thinking off"),
    "reasoning.summary": Field("honoured", "none hides the thought; anything else shows it whole"),
    "reasoning.context": Field("honoured", "all_turns keeps the thoughts of earlier turns"),
    "reasoning.generate_summary": Field("noted", "older name of `summary`"),
    "reasoning.mode": Field("noted", "there is one mode", ("standard",)),
    "text.format": Field("honoured", "text, json_object or json_schema"),
    "text.verbosity": Field("echoed", "say in the prompt how long the answer should be", ("medium",)),
    "stream_options.include_obfuscation": Field("noted", "events are not padded", (False,)),
    "max_tool_calls": Field("honoured", "bounds the calls of each tool that the gateway runs; echoed"),
    "prompt_cache_retention": Field("echoed", "the engine decides how long a prefix is kept"),
    "safety_identifier": Field("echoed", "keys and headers decide here who the caller is"),
    "top_logprobs": Field("echoed", "responses carry no log probabilities; use /v1/chat/completions", (0,)),
    "truncation": Field("echoed", "what does not fit is refused, never cut", ("disabled",)),
    "user": Field("echoed", "keys and headers decide here who the caller is"),
    "stream_options": Field("honoured", "each member has a row"),
    "image": Field("echoed", "no images are made here"),
    "access_programs": Field("echoed", "no programs run here"),
    "moderation": Field("noted", "nothing is moderated here"),
    "context_management": Field("noted", "send a compaction_trigger item, or use /v1/responses/compact"),
    "prompt": Field(
        "refused", "stored prompt templates are not kept here; send the text in `instructions` and `input`"
    ),
    "conversation": Field(
        "refused", "conversation objects are not kept here; use `previous_response_id` or send the items in `input`"
    ),
}

COMPLETIONS: FieldTable = {
    **_honoured(
        model="names a served model; the default one where absent",
        prompt="text, token ids, or a list of either, as they are",
        max_tokens="16 where absent",
        n="several answers to each prompt",
        echo="the prompt before the answer",
        logprobs="0 to 20",
        logit_bias="token ids to -100 to 100",
        stop="matched in the answer",
        stream="server-sent events or one document",
        stream_options="`include_usage` ends a stream with the counts; needs `stream`",
    ),
    **_SAMPLING,
    **_NVEXT,
    **_SALT,
    "nvext.max_thinking_tokens": Field("noted", "a raw completion has no thoughts"),
    "nvext.dispatch": Field("noted", "a raw completion has no calls", (False,)),
    "nvext.use_raw_prompt": Field("accepted", "prompts are always raw here"),
    "nvext.token_data": Field("noted", "put the token ids into `prompt`"),
    "stream_options.include_usage": Field("honoured", "ends a stream with the counts"),
    "stream_options.continuous_usage_stats": Field("noted", "counts come at the end", (False,)),
    "stream_options.include_obfuscation": Field("noted", "chunks are not padded", (False,)),
    "user": _WHO,
    "best_of": Field("noted", "every answer is returned, none is ranked away", (1,)),
    "suffix": Field(
        "refused",
        "text to fill in between is not offered; put both sides into the prompt as the model's own "
        "fill-in-the-middle format wants them",
        ("",),
    ),
}

EMBEDDINGS: FieldTable = {
    **_honoured(
        model="names a served model; the default one where absent",
        input="text, token ids, or a list of either",
        encoding_format="float or base64",
        dimensions="must be what the model's vectors have",
    ),
    "user": _WHO,
}

TOKENIZE: FieldTable = {
    **_honoured(
        model="names a served model; the default one where absent",
        prompt="text to tokenize as it is",
        text="the same as `prompt`",
        content="the same as `prompt`",
        messages="a conversation to render and tokenize, as /v1/chat/completions would",
        tools="tools of that conversation",
        functions="the older form of `tools`",
        chat_template_kwargs="passed to the chat template",
    ),
    "return_token_strs": Field("honoured", "the text of each token as well"),
    "add_generation_prompt": Field("noted", "the prompt of the next turn is counted", (True,)),
    "continue_final_message": Field("noted", "the prompt of the next turn is counted", (False,)),
    "add_special_tokens": Field("noted", "the template decides about special tokens", (False,)),
    "add_special": Field("noted", "the template decides about special tokens", (False,)),
    "with_pieces": Field("honoured", "the same as `return_token_strs`"),
}

DETOKENIZE: FieldTable = _honoured(model="names a served model; the default one where absent", tokens="token ids")

TABLES: Mapping[str, FieldTable] = {
    "Messages": MESSAGES,
    "Chat Completions": CHAT,
    "Responses": RESPONSES,
    "Completions": COMPLETIONS,
    "Embeddings": EMBEDDINGS,
    "Tokenize": TOKENIZE,
    "Detokenize": DETOKENIZE,
}
