// The OpenAI TypeScript SDK: Chat Completions and Responses by their stream helpers. Prints one JSON object.
import OpenAI from "openai";

const { GATEWAY_URL, GATEWAY_MODEL: model } = process.env;
const client = new OpenAI({ baseURL: `${GATEWAY_URL}/v1`, apiKey: "sk-test", maxRetries: 0, timeout: 30000 });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const question = { role: "user", content: "How is the weather in Paris?" };

const cases = {
  async chat_stream() {
    const tools = [{ type: "function", function: { name: "get_weather", description: "Weather.", parameters } }];
    const messages = [question];
    for (let step = 0; step < 4; step++) {
      const stream = client.chat.completions.stream({ model, messages, tools });
      const { message } = (await stream.finalChatCompletion()).choices[0];
      messages.push(message);
      if (!message.tool_calls?.length) return { text: message.content };
      for (const call of message.tool_calls) {
        const { city } = JSON.parse(call.function.arguments);
        messages.push({ role: "tool", tool_call_id: call.id, content: `sunny in ${city}` });
      }
    }
  },
  async chat_naive() {
    let text = "";
    const calls = [];
    const tools = [{ type: "function", function: { name: "get_weather", description: "Weather.", parameters } }];
    for await (const chunk of await client.chat.completions.create({ model, messages: [question], tools, stream: true })) {
      const { delta } = chunk.choices[0];
      text += delta.content ?? "";
      for (const part of delta.tool_calls ?? []) {
        calls[part.index] ??= { name: part.function.name, arguments: "" };
        calls[part.index].arguments += part.function.arguments ?? "";
      }
    }
    return { text, calls: calls.map((c) => [c.name, JSON.parse(c.arguments)]) };
  },
  async responses_stream() {
    const tools = [{ type: "function", name: "get_weather", description: "Weather.", parameters, strict: false }];
    let input = [question];
    for (let step = 0; step < 4; step++) {
      const stream = client.responses.stream({
        model, input, tools, store: false, include: ["reasoning.encrypted_content"], reasoning: { effort: "low" },
      });
      for await (const event of stream) if (event.type === "error") throw new Error(JSON.stringify(event));
      const response = await stream.finalResponse();
      const calls = response.output.filter((item) => item.type === "function_call");
      if (!calls.length) return { text: response.output_text, status: response.status };
      const results = calls.map((c) => ({
        type: "function_call_output", call_id: c.call_id, output: `sunny in ${JSON.parse(c.arguments).city}`,
      }));
      const output = response.output.map(({ parsed_arguments, ...item }) => item);
      input = [...input, ...output, ...results];
    }
  },
};
console.log(JSON.stringify(await cases[process.argv[2]]()));
