// What the model says: a list of bars for each gap, and the sentence as it reads with the words that are looked at.

import { characters, make } from "../lib/dom.js";
import { percent, t } from "../lib/language.js";

/** One list a gap. `onLook(gap, candidate)` follows pointer and focus; `onTake(candidate)` a click. */
export function drawGaps(gaps, onLook, onTake) {
  return gaps.map(({ candidates }, index) => {
    const title = make(
      "h2",
      { className: "gap-title" },
      t(gaps.length > 1 ? "fill.gap" : "fill.only_gap", { number: index + 1 }),
    );
    const list = candidates.map((candidate) => make("li", {}, row(index, candidate, onLook, onTake)));
    return make("section", { className: "gap card" }, title, make("ol", {}, ...list));
  });
}

function row(gap, candidate, onLook, onTake) {
  const share = percent(candidate.score);
  const bar = make("span", { className: "bar", ariaHidden: "true" });
  bar.style.setProperty("--share", candidate.score);
  return make(
    "button",
    {
      type: "button",
      className: "candidate",
      ariaLabel: t("fill.take", { word: candidate.word, share }),
      title: t("fill.take", { word: candidate.word, share }),
      onclick: () => onTake(candidate),
      onpointerenter: () => onLook(gap, candidate),
      onfocus: () => onLook(gap, candidate),
    },
    make("span", { className: "candidate-word" }, candidate.word),
    bar,
    make("span", { className: "candidate-score" }, share),
  );
}

/** The text, as nodes, with a word in the place of each gap. */
export function readingOf(text, gaps, words) {
  const points = characters(text);
  const nodes = [];
  let from = 0;
  gaps.forEach(({ start, end }, index) => {
    nodes.push(points.slice(from, start).join(""), make("mark", {}, words[index]));
    from = end;
  });
  return [...nodes, points.slice(from).join("")];
}
