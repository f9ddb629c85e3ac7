// Speaks to the service, by addresses relative to the page. Whatever goes wrong comes out as a Trouble with a code.

import { askForKey, key, refused } from "./key.js";

const PASSING = new Set([429, 503, 504]);

export class Trouble extends Error {
  /** `type` is the service's error_type, or ours: unreachable, not_ours. `requestId` finds the line in its log. */
  constructor(type, { sentence = "", details = {}, status = 0, retryAfterS = 0, requestId = "" } = {}) {
    super(sentence || type);
    Object.assign(this, { type, sentence, details, status, retryAfterS, requestId });
  }

  /** Whether waiting can help: overloaded, without a worker, restarting, away. */
  get passing() {
    return this.type === "unreachable" || PASSING.has(this.status);
  }
}

export const facts = (signal) => get("info", signal);

/** Asked in the background: it never comes up with the dialog for a key. */
export const status = (signal) => get("status", signal, { mayAsk: false });

/** -> {results, spent}: the answer of POST /v1/fill-mask, and where its time went, in milliseconds. */
export async function fill(question, signal) {
  const began = performance.now();
  const response = await send("v1/fill-mask", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(question),
    signal,
  });
  const { results } = await bodyOf(response);
  return { results, spent: spentOn(response.headers, performance.now() - began) };
}

/** Repeats `ask` while its trouble is a passing one, telling `onWait` of it; gives up when the signal says so. */
export async function patiently(ask, signal, onWait) {
  for (;;) {
    try {
      return await ask();
    } catch (trouble) {
      if (!trouble.passing || signal.aborted) throw trouble;
      onWait(trouble);
      await rest(Math.min(Math.max(trouble.retryAfterS, 1), 5) * 1000, signal);
    }
  }
}

async function get(path, signal, { mayAsk = true } = {}) {
  const response = await send(path, { signal }, mayAsk);
  return bodyOf(response);
}

/** A proxy may answer 200 with a page of its own. */
async function bodyOf(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("not_ours", { details: { status: response.status } });
  }
}

async function send(path, options, mayAsk = true) {
  for (;;) {
    const used = key();
    const response = await reach(path, used ? withKey(options, used) : options);
    if (response.ok) return response;
    const trouble = await troubleOf(response);
    if (response.status !== 401) throw trouble;
    if (used) refused(used);
    if (key() === null && !(mayAsk && (await askForKey(trouble.type)))) throw trouble;
  }
}

const withKey = (options, used) => ({ ...options, headers: { ...options.headers, authorization: `Bearer ${used}` } });

async function reach(path, options) {
  try {
    return await fetch(path, { cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Trouble("unreachable");
  }
}

async function troubleOf(response) {
  const told = { status: response.status, requestId: response.headers.get("x-request-id") ?? "" };
  try {
    const { error, error_type, details } = await response.json();
    const retryAfterS = Number(response.headers.get("retry-after")) || 0;
    return new Trouble(error_type, { ...told, sentence: error, details, retryAfterS });
  } catch {
    return new Trouble("not_ours", { ...told, details: { status: response.status } });
  }
}

function spentOn(headers, totalMs) {
  const ms = (name) => Number(headers.get(`x-fillmask-${name}-ms`));
  const [tokenizeMs, queueMs, inferenceMs] = [ms("tokenize"), ms("queue"), ms("inference")];
  const restMs = Math.max(0, totalMs - tokenizeMs - queueMs - inferenceMs);
  return { tokenizeMs, queueMs, inferenceMs, restMs, batch: Number(headers.get("x-fillmask-batch-size")) };
}

function rest(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}
