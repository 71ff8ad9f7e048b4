// An OpenAI-compatible server over llama.cpp, for tests: a real engine with a tiny model.
//
//   node server.js MODEL [NAME=VALUE...]       see `settings`
//
// Happy path: it says "listening on HOST:PORT" on stdout; a request is tokenised, waits for a slot,
// takes the free one whose cache holds most of its prompt, computes the rest, and generates.
// Failure modes: a client that leaves (waiting, in its prompt or in its answer) gives its slot up
// before the next token or piece of its prompt; a prompt too long, or no JSON, gets a 400.
//
//   POST /v1/chat/completions /v1/completions    streamed or not, n = 1
//   GET  /health /v1/models /metrics             metrics by vLLM's names
//   GET  /log                                    a JSON line a request, oldest first: what it did
import http from "node:http";
import { getLlama, LlamaLogLevel } from "node-llama-cpp";

const settings = { port: 0, slots: 4, context: 8192, name: "tiny-random" };
const PIECE = 256; // tokens of a prompt computed at once; a client is missed in between
const BODY_MAX = 4 << 20;

const [modelPath, ...assignments] = process.argv.slice(2);
for (const assignment of assignments) {
  const [name, value] = assignment.split("=");
  if (!(name in settings) || !value) throw new Error(`no such setting: ${assignment}`);
  settings[name] = typeof settings[name] === "number" ? Number(value) : value;
}

const llama = await getLlama({
  gpu: false, build: "never", skipDownload: true, maxThreads: 1, logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
  sequences: settings.slots, contextSize: settings.context, batchSize: 512, threads: 1,
});
const SPACE = model.tokenize(" ")[0];
const started = Math.floor(Date.now() / 1000);

// ---- slots ----

const slots = Array.from({ length: settings.slots }, () => ({
  sequence: context.getSequence(), busy: false,
}));
const waiting = []; // { resolve, tokens }, in the order that they came

function cachedBy(slot, tokens) {
  return slot.sequence.compareContextTokens(tokens).firstDifferentIndex;
}

// The free slot that holds most of these tokens; of equal ones that which has least to lose.
function freeSlot(tokens) {
  const worth = (slot) => cachedBy(slot, tokens) - slot.sequence.nextTokenIndex / 1e6;
  const free = slots.filter((slot) => !slot.busy);
  return free.reduce((best, slot) => (best && worth(best) >= worth(slot) ? best : slot), null);
}

// Resolves with a slot, or with null when the client left first.
function takeSlot(tokens, gone) {
  if (gone?.aborted) return null;
  const slot = freeSlot(tokens);
  if (slot) {
    slot.busy = true;
    return slot;
  }
  return new Promise((resolve) => {
    const waiter = { resolve, tokens };
    waiting.push(waiter);
    gone.addEventListener("abort", () => {
      const at = waiting.indexOf(waiter);
      if (at < 0) return;
      waiting.splice(at, 1);
      resolve(null);
    });
  });
}

function giveSlot(slot) {
  slot.busy = false;
  const next = waiting.shift();
  if (next) next.resolve(takeSlot(next.tokens));
}

// ---- prompts ----

// ChatML. Only the marks between messages are control tokens, whatever a message says.
function chatTokens(messages) {
  const mark = (text) => model.tokenize(text, true);
  const tokens = [];
  for (const { role, content } of messages) {
    const text = typeof content === "string" ? content
      : (content ?? []).map((part) => part.text ?? "").join("");
    tokens.push(...mark("<|im_start|>"), ...model.tokenize(`${role}\n${text}`),
      ...mark("<|im_end|>"), ...model.tokenize("\n"));
  }
  tokens.push(...mark("<|im_start|>"), ...model.tokenize("assistant\n"));
  return tokens;
}

function promptTokens(body, chat) {
  if (!chat) return typeof body.prompt === "string" ? model.tokenize(body.prompt)
    : body.prompt ?? [];
  return chatTokens(body.messages ?? []);
}

// ---- generation ----

const totals = { prompt: 0, cached: 0, generated: 0, stop: 0, length: 0, abort: 0 };

// Slots that are made ready. The engine's library keeps the context locked while any slot has tokens
// to compute, so that a new request would wait for the end of all answers before its slot could
// drop what it held; therefore the others pause for it, between two steps.
const preparing = new Set();

async function prepare(sequence, tokens) {
  const done = sequence.adaptStateToTokens(tokens, false);
  preparing.add(done);
  try {
    await done;
  } finally {
    preparing.delete(done);
  }
}

async function nextStep() {
  while (preparing.size > 0) await Promise.allSettled(preparing);
}

// Computes the prompt and yields each token's text; notes what it does in the entry.
async function* generate(slot, tokens, body, entry, gone) {
  const { sequence } = slot;
  // The last token is always computed: its output is the first answer.
  await prepare(sequence, tokens.slice(0, -1));
  entry.cached_tokens = sequence.nextTokenIndex;
  totals.prompt += tokens.length;
  totals.cached += entry.cached_tokens;
  let at = entry.cached_tokens;
  for (; tokens.length - at > PIECE && !gone.aborted; at += PIECE) {
    await nextStep();
    await sequence.evaluateWithoutGeneratingNewTokens(tokens.slice(at, at + PIECE));
  }
  const room = settings.context - tokens.length;
  const most = Math.min(body.max_completion_tokens ?? body.max_tokens ?? 16, room);
  const answer = sequence.evaluate(tokens.slice(at), {
    temperature: body.temperature ?? 1, seed: body.seed ?? 1, yieldEogToken: true,
  });
  let instead;
  while (!gone.aborted) {
    await nextStep();
    const token = (await answer.next(instead)).value;
    if (gone.aborted) break;
    entry.completion_tokens += 1;
    entry.first_token_ms ??= performance.now() - entry.came_ms;
    totals.generated += 1;
    const end = model.isEogToken(token);
    // An answer has some text.
    const ended = end && !body.ignore_eos && entry.completion_tokens > 1;
    instead = end ? SPACE : undefined;
    if (!ended) yield model.detokenize([instead ?? token]);
    if (ended || entry.completion_tokens === most) {
      entry.outcome = ended ? "stop" : "length";
      entry.total_ms = performance.now() - entry.came_ms;
      break;
    }
  }
  await answer.return();
}

// ---- answers ----

const log = [];

function usage(entry) {
  return {
    prompt_tokens: entry.prompt_tokens,
    completion_tokens: entry.completion_tokens,
    total_tokens: entry.prompt_tokens + entry.completion_tokens,
    prompt_tokens_details: { cached_tokens: entry.cached_tokens },
  };
}

function sendJson(response, status, body) {
  const text = JSON.stringify(body);
  response.writeHead(status, {
    "Content-Type": "application/json", "Content-Length": Buffer.byteLength(text),
  });
  response.end(text);
}

function refuse(response, status, message) {
  sendJson(response, status, {
    error: { message, type: "invalid_request_error", param: null, code: status },
  });
}

async function answerStream(response, texts, entry, shape, withUsage) {
  const send = (chunk) => response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  let first = true;
  for await (const text of texts) {
    if (first) {
      response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
      if (shape.opening) send(shape.opening);
      first = false;
    }
    send(shape.chunk(text, null));
  }
  if (entry.outcome === "running") return;
  if (first) response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8" });
  send(shape.chunk("", entry.outcome));
  if (withUsage) send({ ...shape.head, choices: [], usage: usage(entry) });
  response.end("data: [DONE]\n\n");
}

async function answerWhole(response, texts, entry, shape) {
  let all = "";
  for await (const text of texts) all += text;
  if (entry.outcome === "running") return;
  sendJson(response, 200, { ...shape.whole(all, entry.outcome), usage: usage(entry) });
}

function chatShape(entry) {
  const head = {
    id: `chatcmpl-${entry.id}`, object: "chat.completion.chunk", created: entry.created,
    model: settings.name,
  };
  const choice = (delta, reason) => ({
    ...head, choices: [{ index: 0, delta, finish_reason: reason }],
  });
  return {
    head,
    opening: choice({ role: "assistant", content: "" }, null),
    chunk: (text, reason) => choice(text ? { content: text } : {}, reason),
    whole: (text, reason) => ({
      ...head, object: "chat.completion",
      choices: [{ index: 0, message: { role: "assistant", content: text }, finish_reason: reason }],
    }),
  };
}

function textShape(entry) {
  const head = {
    id: `cmpl-${entry.id}`, object: "text_completion", created: entry.created,
    model: settings.name,
  };
  const chunk = (text, reason) => ({
    ...head, choices: [{ index: 0, text, logprobs: null, finish_reason: reason }],
  });
  return { head, chunk, whole: chunk };
}

async function complete(request, response, body, chat, came) {
  const tokens = promptTokens(body, chat);
  const gone = new AbortController();
  response.on("close", () => response.writableFinished || gone.abort());
  const entry = {
    id: log.length + 1, created: Math.floor(Date.now() / 1000), path: request.url,
    stream: Boolean(body.stream), prompt_tokens: tokens.length, cached_tokens: 0,
    completion_tokens: 0, outcome: "waiting", came_ms: came,
  };
  log.push(entry);
  if (tokens.length === 0 || tokens.length >= settings.context) {
    entry.outcome = "refused";
    return refuse(response, 400, `${tokens.length} tokens, the context has ${settings.context}`);
  }
  if (response.destroyed) gone.abort(); // before anybody listened
  const slot = await takeSlot(tokens, gone.signal);
  if (slot) {
    entry.slot = slots.indexOf(slot);
    entry.outcome = "running";
    try {
      const texts = generate(slot, tokens, body, entry, gone.signal);
      const shape = chat ? chatShape(entry) : textShape(entry);
      if (body.stream) {
        await answerStream(response, texts, entry, shape, body.stream_options?.include_usage);
      } else {
        await answerWhole(response, texts, entry, shape);
      }
    } finally {
      giveSlot(slot);
    }
  }
  if (entry.outcome === "waiting" || entry.outcome === "running") entry.outcome = "abort";
  totals[entry.outcome] += 1;
}

// ---- the rest ----

function metrics() {
  const held = slots.reduce((sum, slot) => sum + (slot.busy ? slot.sequence.nextTokenIndex : 0), 0);
  const label = `model_name="${settings.name}"`;
  const lines = [];
  const add = (kind, name, value, more = "") => {
    const type = `# TYPE vllm:${name} ${kind}`;
    if (!lines.includes(type)) lines.push(type);
    lines.push(`vllm:${name}{${label}${more}} ${value}`);
  };
  add("gauge", "num_requests_running", slots.filter((slot) => slot.busy).length);
  add("gauge", "num_requests_waiting", waiting.length);
  add("gauge", "kv_cache_usage_perc", held / (settings.slots * settings.context));
  add("counter", "prefix_cache_queries_total", totals.prompt);
  add("counter", "prefix_cache_hits_total", totals.cached);
  add("counter", "prompt_tokens_total", totals.prompt);
  add("counter", "generation_tokens_total", totals.generated);
  for (const reason of ["stop", "length", "abort"]) {
    add("counter", "request_success_total", totals[reason], `,finished_reason="${reason}"`);
  }
  return lines.join("\n") + "\n";
}

const pages = {
  "/health": (response) => response.writeHead(200).end(),
  "/v1/models": (response) => sendJson(response, 200, {
    object: "list",
    data: [{
      id: settings.name, object: "model", created: started, owned_by: "llama.cpp", root: modelPath,
      parent: null, max_model_len: settings.context,
    }],
  }),
  "/metrics": (response) =>
    response.writeHead(200, { "Content-Type": "text/plain; version=0.0.4" }).end(metrics()),
  "/log": (response) => {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    response.end(log.map((entry) => JSON.stringify(entry) + "\n").join(""));
  },
};

async function readBody(request) {
  const parts = [];
  let length = 0;
  for await (const part of request) {
    length += part.length;
    if (length > BODY_MAX) throw new Error("the body is too large");
    parts.push(part);
  }
  return JSON.parse(Buffer.concat(parts).toString("utf8"));
}

async function serve(request, response) {
  const chat = request.url === "/v1/chat/completions";
  if (request.method === "GET" && pages[request.url]) return pages[request.url](response);
  if (request.method !== "POST" || (!chat && request.url !== "/v1/completions")) {
    return refuse(response, 404, "no such page");
  }
  const came = performance.now();
  let body;
  try {
    body = await readBody(request);
  } catch (error) {
    return refuse(response, 400, error.message);
  }
  if (body.model && body.model !== settings.name) {
    return refuse(response, 404, `The model ${body.model} does not exist.`);
  }
  await complete(request, response, body, chat, came);
}

const server = http.createServer((request, response) => {
  serve(request, response).catch((error) => {
    console.error(error);
    if (response.headersSent) response.destroy();
    else refuse(response, 500, error.message);
  });
});
server.listen(settings.port, "127.0.0.1", () => {
  console.log(`listening on 127.0.0.1:${server.address().port}`);
});
