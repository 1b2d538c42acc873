// The Vercel AI SDK on the provider named by the first argument. Prints one JSON object.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { GATEWAY_URL, GATEWAY_MODEL } = process.env;
const where = { baseURL: `${GATEWAY_URL}/v1`, apiKey: "sk-test" };
const providers = {
  chat: () => ({ model: createOpenAICompatible({ ...where, name: "gw" })(GATEWAY_MODEL) }),
  messages: () => ({
    model: createAnthropic(where)(GATEWAY_MODEL),
    providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
  }),
  // `store` unset: the library sends item_reference for what it has seen.
  responses: () => ({
    model: createOpenAI(where).responses(GATEWAY_MODEL),
    providerOptions: { openai: { reasoningSummary: "auto", forceReasoning: true } },
  }),
  responses_unstored: () => ({
    model: createOpenAI(where).responses(GATEWAY_MODEL),
    providerOptions: {
      openai: {
        store: false, include: ["reasoning.encrypted_content"], reasoningSummary: "auto", forceReasoning: true,
      },
    },
  }),
};
const result = streamText({
  ...providers[process.argv[2]](),
  prompt: "How is the weather in Paris?",
  maxRetries: 0,
  maxOutputTokens: 4000,
  stopWhen: stepCountIs(4),
  onError: ({ error }) => { throw error; },
  tools: {
    get_weather: tool({
      description: "Weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => `sunny in ${city}`,
    }),
  },
});
let text = "";
let reasoning = "";
for await (const part of result.fullStream) {
  if (part.type === "text-delta") text += part.text;
  if (part.type === "reasoning-delta") reasoning += part.text;
  if (part.type === "error") throw part.error;
}
console.log(JSON.stringify({ text, reasoning, steps: (await result.steps).length }));
