// Many lines, a page of them a request. A refused line costs its neighbours nothing; a service that is away is waited for.

import { fill, patiently } from "../lib/service.js";

const PAGE_LINES = 50;
const OF_NO_LINE = new Set([401, 403, 404, 405]);

/**
 * Yields [{line, text, masks | trouble}, ...] page by page, in the order of the lines as far as none is refused.
 * `texts` is a list of {line, text}; `onWait(trouble)` is told while the service is away. Aborting ends it with an AbortError.
 */
export async function* fillAll(texts, topK, served, signal, onWait) {
  const length = Math.min(PAGE_LINES, served.limits.max_texts);
  const pages = [];
  for (let first = 0; first < texts.length; first += length) pages.push(texts.slice(first, first + length));
  while (pages.length) {
    const page = pages.shift();
    const question = { texts: page.map(({ text }) => text), top_k: topK };
    try {
      const { results } = await patiently(() => fill(question, signal), signal, onWait);
      yield page.map((entry, index) => ({ ...entry, masks: results[index].masks }));
    } catch (trouble) {
      if (signal.aborted || OF_NO_LINE.has(trouble.status)) throw trouble;
      const { refused, rest } = apart(page, trouble);
      pages.unshift(...rest);
      if (refused) yield [{ ...refused, trouble }];
    }
  }
}

/** The one line that the service names, or that is alone; if neither is so, two halves, each to be asked again. */
function apart(page, trouble) {
  const { index } = trouble.details ?? {};
  const at = page.length === 1 ? 0 : index;
  if (at === undefined) {
    const half = Math.ceil(page.length / 2);
    return { refused: null, rest: [page.slice(0, half), page.slice(half)] };
  }
  return { refused: page[at], rest: [page.slice(0, at), page.slice(at + 1)].filter(({ length }) => length) };
}
