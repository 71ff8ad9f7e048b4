// A tiny random language model as a GGUF file, for tests: node model.js FILE [SEED]
//
// llama.cpp's own format and "llama" architecture, 1.4 MB, the same bytes for the same seed. A
// token is a byte, or one of a few pairs of letters. What it writes is lower-case gibberish that
// depends on all of the prompt, and now and then it ends by itself.
//
// How it is kept to printable text: dimension 0 of the residual stream is 1 for every token and no
// layer writes to it, so that the output's column 0 is a bias on each token.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const LAYERS = 2;
const WIDTH = 128;
const HEADS = 4;
const KV_HEADS = 2;
const FEED_FORWARD = 256;
const CONTEXT = 32768;
const PAIRS = ["th", "he", "in", "er", "an", "re", "on", "at", "en", "nd", "ti", "es", "or", "te"];
const SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
const NEVER = -100;
const END_BIAS = 0.4; // of <|im_end|>: more makes shorter answers

// ---- vocabulary ----

// GPT-2 writes a byte that does not print as a letter from 256 on.
function byteNames() {
  const names = [];
  let odd = 256;
  for (let byte = 0; byte < 256; byte++) {
    const prints = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    names.push(String.fromCharCode(prints ? byte : odd++));
  }
  return names;
}

const tokens = [...byteNames(), ...PAIRS, ...SPECIAL];
const END = tokens.indexOf("<|im_end|>");

function bias(token) {
  if (token === END) return END_BIAS;
  const name = tokens[token];
  return PAIRS.includes(name) || /^[a-z\u0120]$/.test(name) ? 0 : NEVER;
}

// Normal, or one that no text may contain.
function tokenType(name) {
  return SPECIAL.includes(name) ? 3 : 1;
}

// ---- weights ----

// mulberry32: numbers from -1 to 1.
function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 31 - 1;
  };
}

function makeTensors(seed) {
  const random = randomNumbers(seed);
  const tensors = [];
  // `rows` vectors of `columns` numbers, of variance gain^2 / columns.
  function matrix(name, columns, rows, gain, change) {
    const data = new Float32Array(columns * rows);
    const scale = gain * Math.sqrt(3 / columns);
    for (let i = 0; i < data.length; i++) data[i] = random() * scale;
    change?.(data);
    tensors.push({ name: name + ".weight", shape: [columns, rows], data });
  }
  function ones(name) {
    const data = new Float32Array(WIDTH).fill(1);
    tensors.push({ name: name + ".weight", shape: [WIDTH], data });
  }
  const leavesBiasAlone = (columns) => (data) => data.fill(0, 0, columns);
  const kvWidth = (WIDTH / HEADS) * KV_HEADS;

  matrix("token_embd", WIDTH, tokens.length, Math.sqrt(WIDTH), (data) => {
    for (let token = 0; token < tokens.length; token++) data[token * WIDTH] = 1;
  });
  ones("output_norm");
  matrix("output", WIDTH, tokens.length, 2, (data) => {
    for (let token = 0; token < tokens.length; token++) data[token * WIDTH] = bias(token);
  });
  for (let layer = 0; layer < LAYERS; layer++) {
    const block = `blk.${layer}.`;
    ones(block + "attn_norm");
    matrix(block + "attn_q", WIDTH, WIDTH, 1);
    matrix(block + "attn_k", WIDTH, kvWidth, 1);
    matrix(block + "attn_v", WIDTH, kvWidth, 2);
    matrix(block + "attn_output", WIDTH, WIDTH, 2, leavesBiasAlone(WIDTH));
    ones(block + "ffn_norm");
    matrix(block + "ffn_gate", WIDTH, FEED_FORWARD, 1);
    matrix(block + "ffn_up", WIDTH, FEED_FORWARD, 1);
    matrix(block + "ffn_down", FEED_FORWARD, WIDTH, 2, leavesBiasAlone(FEED_FORWARD));
  }
  return tensors;
}

// ---- file ----

const UINT32 = 4;
const INT32 = 5;
const FLOAT32 = 6;
const BOOL = 7;
const STRING = 8;
const ARRAY = 9;
const ALIGNMENT = 32;

const bytes = {
  [UINT32]: (value) => Buffer.from(Uint32Array.of(value).buffer),
  [INT32]: (value) => Buffer.from(Int32Array.of(value).buffer),
  [FLOAT32]: (value) => Buffer.from(Float32Array.of(value).buffer),
  [BOOL]: (value) => Buffer.of(value ? 1 : 0),
  [STRING]: (value) => {
    const text = Buffer.from(value, "utf8");
    return Buffer.concat([uint64(text.length), text]);
  },
};

function uint64(value) {
  return Buffer.from(BigUint64Array.of(BigInt(value)).buffer);
}

function entry(key, type, value) {
  return Buffer.concat([bytes[STRING](key), bytes[UINT32](type), bytes[type](value)]);
}

function list(key, type, values) {
  return Buffer.concat([bytes[STRING](key), bytes[UINT32](ARRAY), bytes[UINT32](type),
    uint64(values.length), ...values.map(bytes[type])]);
}

function metadata() {
  return [
    entry("general.architecture", STRING, "llama"),
    entry("general.name", STRING, "tiny-random"),
    entry("general.file_type", UINT32, 0), // all of it is FLOAT32
    entry("llama.vocab_size", UINT32, tokens.length),
    entry("llama.context_length", UINT32, CONTEXT),
    entry("llama.embedding_length", UINT32, WIDTH),
    entry("llama.block_count", UINT32, LAYERS),
    entry("llama.feed_forward_length", UINT32, FEED_FORWARD),
    entry("llama.attention.head_count", UINT32, HEADS),
    entry("llama.attention.head_count_kv", UINT32, KV_HEADS),
    entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
    entry("llama.rope.dimension_count", UINT32, WIDTH / HEADS),
    entry("llama.rope.freq_base", FLOAT32, 10000),
    entry("tokenizer.ggml.model", STRING, "gpt2"),
    entry("tokenizer.ggml.pre", STRING, "gpt-2"),
    list("tokenizer.ggml.tokens", STRING, tokens),
    list("tokenizer.ggml.token_type", INT32, tokens.map(tokenType)),
    list("tokenizer.ggml.merges", STRING, PAIRS.map((pair) => `${pair[0]} ${pair[1]}`)),
    entry("tokenizer.ggml.bos_token_id", UINT32, tokens.indexOf("<|endoftext|>")),
    entry("tokenizer.ggml.eos_token_id", UINT32, END),
    entry("tokenizer.ggml.padding_token_id", UINT32, tokens.indexOf("<|endoftext|>")),
    entry("tokenizer.ggml.add_bos_token", BOOL, false),
  ];
}

const padding = (length) => Buffer.alloc((ALIGNMENT - (length % ALIGNMENT)) % ALIGNMENT);

/** Writes the model. Little-endian, as the machines that the engine runs on are. */
export function writeModel(path, seed = 1) {
  const tensors = makeTensors(seed);
  const entries = metadata();
  const parts = [Buffer.from("GGUF"), bytes[UINT32](3), uint64(tensors.length),
    uint64(entries.length), ...entries];
  let offset = 0;
  for (const { name, shape, data } of tensors) {
    parts.push(bytes[STRING](name), bytes[UINT32](shape.length), ...shape.map(uint64),
      bytes[UINT32](0), uint64(offset)); // type 0: FLOAT32
    offset += data.byteLength + padding(data.byteLength).length;
  }
  parts.push(padding(parts.reduce((sum, part) => sum + part.length, 0)));
  for (const { data } of tensors) parts.push(Buffer.from(data.buffer), padding(data.byteLength));
  writeFileSync(path, Buffer.concat(parts));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeModel(process.argv[2], Number(process.argv[3] ?? 1));
}
