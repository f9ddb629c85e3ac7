// The outcome as rows on the page, and as rows of a file.

import { byId, make } from "../lib/dom.js";
import { percent } from "../lib/language.js";
import { wordsOf } from "../lib/troubles.js";
import { readingOf } from "../fill/bars.js";

/** More rows than anybody reads would only slow the page down; the downloads have all. */
export const MOST_ROWS = 1000;

/** Below the rows that are there. */
export function drawRows(outcomes) {
  const table = byId("batch-rows");
  const room = Math.max(0, MOST_ROWS - table.rows.length);
  table.append(...outcomes.slice(0, room).map(row));
}

function row({ line, text, masks, trouble }) {
  const number = make("td", { className: "number" }, String(line));
  if (trouble) {
    const [what] = wordsOf(trouble);
    return make(
      "tr",
      {},
      number,
      make("td", {}, make("div", { className: "refused" }, text)),
      make("td", { className: "failed" }, what),
    );
  }
  const best = masks.map(({ candidates }) => candidates[0].word);
  return make(
    "tr",
    {},
    number,
    make("td", {}, ...readingOf(text, masks, best)),
    make("td", {}, ...masks.map(wordsOfGap)),
  );
}

function wordsOfGap({ candidates }) {
  const words = candidates.map(({ word, score }) =>
    make("span", { className: "word" }, `${word} `, make("small", {}, percent(score))),
  );
  return make("div", {}, ...words);
}

/** One row a mask: line, text, filled text, which mask, then word and score of each candidate. */
export function asRows(outcomes, topK) {
  const numbers = Array.from({ length: topK }, (_, index) => index + 1);
  const names = [
    "line",
    "text",
    "filled_text",
    "error",
    "mask",
    ...numbers.flatMap((number) => [`word_${number}`, `score_${number}`]),
  ];
  const rows = outcomes.flatMap(({ line, text, masks, trouble }) => {
    if (trouble) return [[line, text, "", trouble.type, ""]];
    const filled = filledText(text, masks);
    return masks.map(({ candidates }, index) => [
      line,
      text,
      filled,
      "",
      index + 1,
      ...candidates.flatMap(({ word, score }) => [word, score]),
    ]);
  });
  return [names, ...rows];
}

export function asObjects(outcomes) {
  return outcomes.map(({ line, text, masks, trouble }) => {
    if (trouble) return { line, text, error: trouble.sentence, error_type: trouble.type };
    const told = masks.map(({ start, end, candidates }) => ({
      start,
      end,
      candidates: candidates.map(({ word, score }) => ({ word, score })),
    }));
    return { line, text, filled_text: filledText(text, masks), masks: told };
  });
}

/** Every mask with its best word. */
function filledText(text, masks) {
  const nodes = readingOf(
    text,
    masks,
    masks.map(({ candidates }) => candidates[0].word),
  );
  return nodes.map((node) => node.textContent ?? node).join("");
}
