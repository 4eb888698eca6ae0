// The openai package of npm against a server: node node_sdk.mjs URL MODEL prints what it saw as JSON.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const who = [{ role: "user", content: "Who are you?" }];
const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", description: "Weather in a city", parameters: city } }];
const weather = [{ role: "user", content: "What is the weather in Paris?" }];

const whole = await client.chat.completions.create({ model, messages: who, temperature: 0 });
const stream = client.chat.completions.stream({ model, messages: who, temperature: 0, stream_options: { include_usage: true } });
const streamed = await stream.finalChatCompletion();
const calling = await client.chat.completions.stream({ model, messages: weather, tools, temperature: 0 }).finalChatCompletion();
const response = await client.responses.create({ model, input: "Who are you?", temperature: 0 });
const events = [];
for await (const event of await client.responses.create({ model, input: "Who are you?", temperature: 0, stream: true })) events.push(event.type);
const refused = await client.chat.completions.create({ model: "another", messages: who }).catch((error) => error);
const models = (await client.models.list()).data.map(({ id }) => id);

const stopped = await client.chat.completions.create({ model, messages: who, stream: true });
let pieces = 0;
for await (const _ of stopped) if (++pieces === 3) break; // which aborts the request

console.log(JSON.stringify({
  whole: whole.choices[0].message.content,
  streamed: streamed.choices[0].message.content,
  usage: [whole.usage.completion_tokens, streamed.usage.completion_tokens],
  call: calling.choices[0].message.tool_calls[0].function,
  response: response.output_text,
  events: [events[0], events.at(-1)],
  refused: [refused.constructor.name, refused.status, refused.code],
  models,
  pieces,
}));
