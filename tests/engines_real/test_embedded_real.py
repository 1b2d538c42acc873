"""The embedded engine with real weights: SmolLM2 streams, Qwen2.5-Coder calls tools (fetched on first use)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from turnwire.engines.bridge import pull
from turnwire.engines.embedded.engine import EmbeddedEngine
from turnwire.engines.guided.plan import plan_constraint
from turnwire.engines.interface import Completion, Constraint, GenerateRequest, Hints, TokenBatch
from turnwire.parsers import Parser, dialects, resolve, start_state
from turnwire.profiles import find_profile
from turnwire.prompts.builder import PromptBuilder
from turnwire.prompts.prompt import Prompt
from turnwire.prompts.templates.template import ChatTemplate
from turnwire.prompts.tokenizers.load import load_tokenizer, read_gguf
from turnwire.turns import Conversation, Message, Sampling, TextBlock, Tool, ToolCallClosed, ToolChoice

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]


class Model:
    """A started engine with its prompt side."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.tokenizer = load_tokenizer(engine.model_path)
        facts = read_gguf(engine.model_path)
        tokens = facts.metadata["tokenizer.ggml.tokens"]
        assert facts.chat_template is not None
        assert isinstance(tokens, list)
        names = {"eos_token": str(tokens[facts.eos_id or 0]), "bos_token": str(tokens[facts.bos_id or 0])}
        self.builder = PromptBuilder(ChatTemplate(facts.chat_template, names), self.tokenizer)

    def ask(self, text: str, tools: tuple[Tool, ...] = (), choice: ToolChoice | None = None) -> Conversation:
        message = Message(role="user", blocks=(TextBlock(text=text),))
        return Conversation(model="m", messages=(message,), tools=tools, tool_choice=choice or ToolChoice())

    def request(
        self, prompt: Prompt, conversation: Conversation, constraint: Constraint | None = None, **wishes: object
    ) -> GenerateRequest:
        sampling = Sampling(**{"temperature": 0.0, "max_tokens": 60, **wishes})  # type: ignore[arg-type]
        return GenerateRequest(
            prompt_ids=prompt.ids,
            sampling=sampling,
            hints=Hints(request_id="real"),
            conversation=conversation,
            constraint=constraint,
        )

    async def run(self, request: GenerateRequest) -> tuple[list[TokenBatch], Completion]:
        steps = [step async for step in pull(self.engine, request)]
        *batches, end = steps
        assert isinstance(end, Completion)
        return [batch for batch in batches if isinstance(batch, TokenBatch)], end


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def smollm() -> AsyncIterator[Model]:
    engine = EmbeddedEngine()
    await engine.start()
    yield Model(engine)
    await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def qwen() -> AsyncIterator[Model]:
    engine = EmbeddedEngine("qwen2.5-coder-1.5b")
    await engine.start()
    yield Model(engine)
    await engine.close()


async def test_it_streams_real_text_with_the_ids_that_spell_it(smollm: Model) -> None:
    conversation = smollm.ask("Say hello and name three animals.")
    prompt = smollm.builder.build(conversation)
    batches, end = await smollm.run(smollm.request(prompt, conversation))
    text = "".join(batch.text for batch in batches)
    ids = [token for batch in batches for token in batch.ids]
    assert len(batches) > 5
    assert any(word in text.lower() for word in ("hello", "cat", "dog", "lion", "elephant"))
    assert smollm.tokenizer.decode(ids) == text
    assert end.prompt_tokens == len(prompt.ids)
    assert end.output_tokens - len(ids) == (end.reason == "stop")


@pytest.mark.parametrize("seed", range(4))
async def test_ids_are_exact_where_characters_span_tokens(smollm: Model, seed: int) -> None:
    conversation = smollm.ask("Repeat: 🎉🎊🥳 漢字 café ñandú")
    prompt = smollm.builder.build(conversation)
    wishes = {"temperature": 0.9, "seed": seed, "max_tokens": 50}
    batches, _ = await smollm.run(smollm.request(prompt, conversation, **wishes))
    ids = [token for batch in batches for token in batch.ids]
    assert smollm.tokenizer.decode(ids) == "".join(batch.text for batch in batches)


async def test_the_next_turn_finds_the_last_one_in_the_cache(smollm: Model) -> None:
    conversation = smollm.ask("Tell me one fact about the sea, in one sentence.")
    prompt = smollm.builder.build(conversation)
    batches, end = await smollm.run(smollm.request(prompt, conversation))
    said = [token for batch in batches for token in batch.ids]
    longer = [*prompt.ids, *said, *smollm.tokenizer.encode("<|im_end|>\n<|im_start|>user\nAnd why?<|im_end|>\n")]
    request = smollm.request(Prompt(ids=longer, tail=""), conversation, max_tokens=2)
    _, after = await smollm.run(request)
    assert after.cached_tokens >= end.prompt_tokens + len(said) - 1


async def test_several_run_at_once_and_leaving_frees_a_slot(smollm: Model) -> None:
    conversation = smollm.ask("Count from one to fifty.")
    prompt = smollm.builder.build(conversation)
    runs = await asyncio.gather(
        *(smollm.run(smollm.request(prompt, conversation, max_tokens=20, seed=seed)) for seed in range(6))
    )
    assert all(end.output_tokens == 20 or end.reason == "stop" for _, end in runs)
    for _ in range(6):
        stream = pull(smollm.engine, smollm.request(prompt, conversation, max_tokens=2000))
        await anext(stream)
        await stream.aclose()
    _, end = await smollm.run(smollm.request(prompt, conversation, max_tokens=3))
    assert end.output_tokens == 3


FILES = Tool(
    name="list_files",
    description="List the files in a folder.",
    schema={"type": "object", "properties": {"folder": {"type": "string"}}, "required": ["folder"]},
)
READ = Tool(
    name="read_file",
    description="Read a file.",
    schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
RUN = Tool(
    name="run_command",
    description="Run a shell command.",
    schema={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
WEATHER = Tool(
    name="get_weather",
    description="Get the weather of a city.",
    schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
)
CLOCK = Tool(
    name="clock",
    description="Tell the time.",
    schema={"type": "object", "properties": {"zone": {"enum": ["UTC", "local"]}}, "required": ["zone"]},
)
TOOLS = (FILES, READ, RUN, WEATHER)
SMALL = (CLOCK, WEATHER)
PROMPTS = {
    "List the files in the folder src.": "list_files",
    "What is in the file README.md? Read it.": "read_file",
    "Run the command `ls -la`.": "run_command",
    "What is the weather in Oslo?": "get_weather",
    "Show me the content of config.toml.": "read_file",
    "Which files are in /tmp?": "list_files",
    "Run the tests with pytest -q.": "run_command",
    "Is it raining in Lima right now?": "get_weather",
    "Open main.py and tell me what it does.": "read_file",
    "Execute `git status` for me.": "run_command",
}


async def test_llamacpp_reads_the_grammar_of_every_dialect(smollm: Model) -> None:
    strict = Tool(name="strict", schema=WEATHER.schema, strict=True)
    for name in [dialect.name for dialect in dialects() if dialect.writes is not None]:
        for wish in (ToolChoice(mode="required"), ToolChoice()):
            conversation = smollm.ask("Hello", (*TOOLS, strict), wish)
            plan = plan_constraint(conversation, resolve(name), smollm.engine.capabilities)
            prompt = smollm.builder.build(conversation)
            _, end = await smollm.run(smollm.request(prompt, conversation, plan.constraint, max_tokens=1))
            assert end.output_tokens == 1, name


@pytest.mark.parametrize("choice", ["required", "named"])
async def test_even_the_smallest_model_writes_a_forced_call(smollm: Model, choice: str) -> None:
    named = choice == "named"
    wanted = ToolChoice(mode="named", name="get_weather") if named else ToolChoice(mode="required", parallel=False)
    conversation = smollm.ask("What is the weather in Oslo?", SMALL, wanted)
    dialect = resolve("hermes", "none")
    plan = plan_constraint(conversation, dialect, smollm.engine.capabilities)
    prompt = smollm.builder.build(conversation)
    batches, end = await smollm.run(smollm.request(prompt, conversation, plan.constraint, max_tokens=200))
    assert end.reason == "stop"
    parser = Parser(dialect, SMALL, start_state(prompt.tail, dialect))
    events = [event for batch in batches for event in parser.feed(batch.text)]
    events += parser.finish(end.reason)
    calls = [(event.name, event.arguments) for event in events if isinstance(event, ToolCallClosed)]
    assert calls
    assert plan.check is not None
    assert plan.check.faults(calls, "") == ()


async def test_a_real_coder_calls_the_right_tools(qwen: Model) -> None:
    profile = find_profile(qwen.engine.model_path.name)
    assert profile is not None
    assert profile.fenced_json
    dialect = resolve(profile.dialect, profile.reasoning)
    right = []
    for text, tool in PROMPTS.items():
        conversation = qwen.ask(text, TOOLS)
        prompt = qwen.builder.build(conversation)
        batches, end = await qwen.run(qwen.request(prompt, conversation, max_tokens=80))
        parser = Parser(dialect, TOOLS, start_state(prompt.tail, dialect))
        events = [event for batch in batches for event in parser.feed(batch.text)]
        events += parser.finish(end.reason)
        calls = [event for event in events if isinstance(event, ToolCallClosed)]
        if any(call.name == tool and isinstance(json.loads(call.arguments), dict) for call in calls):
            right.append(text)
        print(f"{text!r}: {[(call.name, call.arguments) for call in calls]}", end.cached_tokens)
    assert len(right) >= 7


async def test_a_real_coder_obeys_a_named_choice(qwen: Model) -> None:
    choice = ToolChoice(mode="named", name="run_command")
    conversation = qwen.ask("List the files in the folder src.", TOOLS, choice)
    plan = plan_constraint(conversation, resolve("qwen2_5_coder", "none"), qwen.engine.capabilities)
    batches, end = await qwen.run(
        qwen.request(qwen.builder.build(conversation), conversation, plan.constraint, max_tokens=100)
    )
    text = "".join(batch.text for batch in batches)
    assert text.startswith('<tool_call>\n{"name": "run_command", "arguments": {')
    assert batches[0].ids[0] == qwen.tokenizer.special_tokens["<tool_call>"]
    assert end.reason == "stop"


async def test_embeddings_rank_by_meaning(smollm: Model) -> None:
    texts = ["A cat sits on the mat.", "A kitten rests on a rug.", "Stock markets fell sharply today."]
    cat, kitten, stocks = await smollm.engine.embed(texts)
    assert len(cat) == 384

    def closeness(one: list[float], other: list[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    assert closeness(cat, cat) == pytest.approx(1.0, abs=1e-5)
    assert closeness(cat, kitten) == pytest.approx(0.6651, abs=0.002)
    assert closeness(cat, stocks) == pytest.approx(0.0546, abs=0.002)
