// The official SDK against a base URL: the cases named on the command line, each on its own client.
// A case throws when something is not as a user of the SDK expects it.
//
//   node chat.mjs http://127.0.0.1:8080/v1 MODEL CASE...
//
// The SDK is pinned to the last version that runs on the Node of Debian 12.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, model, ...names] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "sk-test", maxRetries: 0, timeout: 20000 });
const messages = [
  { role: "system", content: "You answer briefly." },
  { role: "user", content: "Which dock takes parcels of 17 kilograms?" },
];

// The error of a promise that must fail.
async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

const cases = {
  async models() {
    const ids = [];
    for await (const each of client.models.list()) ids.push(each.id);
    assert.deepEqual(ids, [model]);
  },

  async chat() {
    const { data, response } = await client.chat.completions
      .create({ model, messages, max_tokens: 6 })
      .withResponse();
    assert.equal(data.object, "chat.completion");
    assert.equal(data.model, model);
    assert.equal(data.choices[0].message.role, "assistant");
    assert.ok(data.choices[0].message.content.length > 0);
    assert.equal(data.usage.completion_tokens, 6);
    assert.ok(data.usage.prompt_tokens > 5);
    assert.match(response.headers.get("x-kvroute-replica"), /^127\.0\.0\.1:\d+$/);
    assert.ok(response.headers.get("x-kvroute-reason"));
  },

  async chatStream() {
    const stream = await client.chat.completions.create({
      model, messages, max_tokens: 8, stream: true, stream_options: { include_usage: true },
    });
    let text = "";
    let finish, usage;
    for await (const chunk of stream) {
      assert.equal(chunk.object, "chat.completion.chunk");
      text += chunk.choices[0]?.delta?.content ?? "";
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.ok(text.length > 0);
    assert.ok(finish === "length" || finish === "stop");
    assert.equal(usage.completion_tokens, 8);
  },

  async streamHelper() {
    let deltas = 0;
    const runner = client.chat.completions
      .stream({ model, messages, max_tokens: 5 })
      .on("content", () => deltas++);
    const final = await runner.finalChatCompletion();
    assert.ok(deltas >= 1);
    assert.ok(final.choices[0].message.content.length > 0);
  },

  async choices() {
    const stream = await client.chat.completions.create({
      model, messages, max_tokens: 4, n: 2, stream: true,
    });
    const texts = ["", ""];
    for await (const chunk of stream)
      for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? "";
    assert.ok(texts[0] && texts[1]);
  },

  async completions() {
    const whole = await client.completions.create({ model, prompt: "Once upon", max_tokens: 5 });
    assert.equal(whole.object, "text_completion");
    assert.ok(whole.choices[0].text.length > 0);
    assert.equal(whole.usage.completion_tokens, 5);
    const stream = await client.completions.create({
      model, prompt: "Once upon", max_tokens: 5, stream: true,
    });
    let text = "";
    for await (const chunk of stream) text += chunk.choices[0]?.text ?? "";
    assert.ok(text.length > 0);
  },

  async responses() {
    const whole = await client.responses.create({
      model, input: "Which dock?", max_output_tokens: 5,
    });
    assert.equal(whole.object, "response");
    assert.ok(whole.output_text.length > 0);
    const types = [];
    const stream = await client.responses.create({
      model, input: "Which dock?", max_output_tokens: 5, stream: true,
    });
    for await (const event of stream) types.push(event.type);
    assert.equal(types[0], "response.created");
    assert.equal(types.at(-1), "response.completed");
  },

  async embeddings() {
    const input = ["one text", "another text"];
    const { data } = await client.embeddings.create({ model, input });
    assert.equal(data.length, 2);
    assert.equal(typeof data[0].embedding[0], "number");
    const again = await client.embeddings.create({ model, input, encoding_format: "float" });
    assert.equal(again.data[1].embedding.length, data[1].embedding.length);
  },

  async cachedTokens() {
    const long = [{ role: "user", content: "The same long question, twice. ".repeat(60) }];
    const ask = () => client.chat.completions.create({ model, messages: long, max_tokens: 2 });
    await ask();
    const second = await ask();
    assert.ok(second.usage.prompt_tokens_details.cached_tokens > 100);
  },

  async unknownModel() {
    const error = await failure(
      client.chat.completions.create({ model: "no-such-model", messages }),
    );
    assert.ok(error instanceof OpenAI.NotFoundError, error);
    assert.equal(error.status, 404);
    assert.equal(error.code, "model_not_found");
    assert.equal(error.param, "model");
    assert.match(error.message, /no-such-model/);
    assert.ok(error.headers.get("x-kvroute-request-id"));
  },

  async badRequest() {
    const error = await failure(
      client.chat.completions.create({ model, messages: "not a list", max_tokens: 4 }),
    );
    assert.ok(error instanceof OpenAI.BadRequestError, error);
    assert.equal(error.status, 400);
    assert.ok(error.message.length > 10);
  },

  async abort() {
    const controller = new AbortController();
    const stream = await client.chat.completions.create(
      { model, messages, max_tokens: 2000, stream: true },
      { signal: controller.signal, headers: { "x-kvroute-tag": "aborted" } },
    );
    let chunks = 0;
    for await (const chunk of stream) {
      assert.ok(chunk.id);
      if (++chunks === 3) controller.abort();
    }
    assert.ok(chunks >= 3 && chunks < 500, `${chunks} chunks`);
  },

  // Many at once over the SDK's own pool of connections.
  async parallel() {
    const ask = async (i) => {
      const stream = await client.chat.completions.create({
        model, max_tokens: 5, stream: true,
        messages: [{ role: "user", content: `Question ${i}` }],
      });
      let chunks = 0;
      for await (const chunk of stream) chunks += chunk.choices.length;
      return chunks;
    };
    const counts = await Promise.all(Array.from({ length: 20 }, (_, i) => ask(i)));
    for (const count of counts) assert.ok(count >= 2);
  },

  // A replica is lost in the middle: an error, and never a text that looks whole.
  async cutStream() {
    const error = await failure(
      (async () => {
        const stream = await client.chat.completions.create({ model, messages, stream: true });
        for await (const chunk of stream) assert.ok(chunk.choices);
      })(),
    );
    assert.ok(!(error instanceof assert.AssertionError), error);
  },

  async unavailable() {
    const error = await failure(client.chat.completions.create({ model, messages }));
    assert.ok(error instanceof OpenAI.InternalServerError, error);
    assert.equal(error.status, 503);
    assert.equal(error.code, "no_replicas");
    assert.ok(Number(error.headers.get("retry-after")) >= 1);
  },

  // The SDK's own retries ride over a moment without a replica.
  async retried() {
    const patient = new OpenAI({ baseURL, apiKey: "sk-test", maxRetries: 3, timeout: 20000 });
    const answer = await patient.chat.completions.create({ model, messages });
    assert.ok(answer.choices.length);
  },
};

for (const name of names) {
  try {
    await cases[name]();
    console.log(`ok ${name}`);
  } catch (error) {
    console.error(`${name}:`, error);
    process.exitCode = 1;
  }
}
