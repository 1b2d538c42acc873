// The Anthropic TypeScript SDK: stream helper, tool runner, counts, models. Prints one JSON object.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const { GATEWAY_URL: baseURL, GATEWAY_MODEL: model } = process.env;
const client = new Anthropic({ baseURL, apiKey: "sk-test", maxRetries: 0, timeout: 30000 });
const input_schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const question = { role: "user", content: "How is the weather in Paris?" };
const text = (message) => message.content.filter((b) => b.type === "text").map((b) => b.text).join("");

const cases = {
  async stream_helper() {
    const tools = [{ name: "get_weather", description: "Weather.", input_schema }];
    const messages = [question];
    for (let step = 0; step < 4; step++) {
      const stream = client.messages.stream({
        model, max_tokens: 4000, messages, tools, thinking: { type: "enabled", budget_tokens: 1024 },
      });
      const message = await stream.finalMessage();
      messages.push({ role: "assistant", content: message.content });
      const calls = message.content.filter((b) => b.type === "tool_use");
      if (!calls.length) return { text: text(message), stop_reason: message.stop_reason };
      messages.push({
        role: "user",
        content: calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: `sunny in ${c.input.city}` })),
      });
    }
  },
  async tool_runner() {
    const weather = betaTool({
      name: "get_weather", description: "Weather.", inputSchema: input_schema, run: ({ city }) => `sunny in ${city}`,
    });
    const last = await client.beta.messages.toolRunner({
      model, max_tokens: 4000, max_iterations: 4, messages: [question], tools: [weather],
    });
    return { text: text(last) };
  },
  async models() {
    const listed = [];
    for await (const one of client.models.list()) listed.push(one.id);
    const counted = await client.messages.countTokens({ model, messages: [question] });
    return { listed, one: (await client.models.retrieve(model)).id, counted: counted.input_tokens };
  },
};
console.log(JSON.stringify(await cases[process.argv[2]]()));
