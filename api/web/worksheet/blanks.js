// Sentences -> questions: where the gap is best, and which wrong words look right there. The model is asked with each gap.

import { characters } from "../lib/dom.js";
import { isHan, mended } from "../lib/masks.js";
import { fill, Trouble } from "../lib/service.js";

/** So many places of a line are tried, from its beginning; a line is one request. */
export const MOST_GAPS = 48;

const CANDIDATES = 30;

/** From here the model counts as sure of the answer: the rest of the sentence decides it, so the question is fair. */
const SURE = 0.8;

/** A wrong word that the model finds a quarter as likely as the right one may well be right, too. */
const TOO_GOOD = 0.25;

/** Words that tell little of whether a sentence was understood; they become gaps only if nothing else does. */
const EMPTY_WORDS = new Set([
  ..."的了着过地得是在和与或也都就还又很把被给对从向到之其而以于吗呢吧啊呀么这那一个我你他她它们有不",
  ..."the a an of to and in is it".split(" "),
]);

const WORD = /^[\p{L}\p{N}]+$/u;

/**
 * -> {pieces, gaps, chosen, remark}: the line in pieces, for each piece that may be a gap {answer, score, wrong}, and the piece
 * that is proposed. A line that has a mask already keeps it, and the model's best word counts as its answer. `remark` is what
 * the teacher should look at: "several" masks, of which the first is kept, or "long". Throws a Trouble if it makes no question.
 */
export async function questionOf(line, token, signal) {
  const text = mended(line, token);
  return text.includes(token) ? given(text, token, signal) : proposed(text, token, signal);
}

async function given(text, token, signal) {
  const [before, ...others] = text.split(token);
  if (![before, ...others].some((part) => /[\p{L}\p{N}]/u.test(part))) throw new Trouble("only_gap");
  const {
    results: [{ masks }],
  } = await fill({ texts: [text], top_k: CANDIDATES }, signal);
  const after = others.flatMap((part, index) => (index ? [masks[index].candidates[0].word, part] : [part])).join("");
  const [{ candidates }] = masks;
  const [{ word: answer, score }] = candidates;
  return {
    pieces: [before, answer, after],
    gaps: new Map([[1, { answer, score, wrong: wrongOf(candidates, answer, score) }]]),
    chosen: 1,
    remark: others.length > 1 ? "several" : "",
  };
}

async function proposed(text, token, signal) {
  const pieces = cut(text);
  const words = pieces.flatMap((piece, index) => (WORD.test(piece) ? [index] : []));
  if (!words.length) throw new Trouble("no_letters");
  if (words.length === 1) throw new Trouble("only_word");
  const places = words.slice(0, MOST_GAPS);
  const texts = places.map((place) => pieces.with(place, token).join(""));
  const { results } = await fill({ texts, top_k: CANDIDATES }, signal);
  const gaps = new Map(
    places.map((place, index) => {
      const { candidates } = results[index].masks[0];
      const answer = pieces[place];
      const score = candidates.find(({ word }) => word === answer)?.score ?? 0;
      return [place, { answer, score, wrong: wrongOf(candidates, answer, score) }];
    }),
  );
  return { pieces, gaps, chosen: fairest(gaps), remark: words.length > MOST_GAPS ? "long" : "" };
}

/** A Chinese line falls into characters, another one into words. */
const cut = (text) =>
  characters(text).some(isHan) ? characters(text) : text.split(/([\p{L}\p{N}]+)/u).filter(Boolean);

function wrongOf(candidates, answer, score) {
  const alike = characters(answer).some(isHan) ? /^\p{Script=Han}+$/u : WORD;
  return candidates
    .filter(
      ({ word, score: other }) =>
        alike.test(word) && word.toLowerCase() !== answer.toLowerCase() && (!score || other < score * TOO_GOOD),
    )
    .map(({ word }) => word);
}

/** The hardest gap of which the model is still sure; if it is sure of none, the one that it knows best. */
function fairest(gaps) {
  const all = [...gaps].map(([place, { answer, score }]) => ({
    place,
    score,
    empty: EMPTY_WORDS.has(answer.toLowerCase()),
  }));
  const full = all.some(({ empty }) => !empty) ? all.filter(({ empty }) => !empty) : all;
  const sure = full.filter(({ score }) => score >= SURE);
  const best = sure.length
    ? sure.reduce((one, other) => (other.score < one.score ? other : one))
    : full.reduce((one, other) => (other.score > one.score ? other : one));
  return best.place;
}
