// Draws the sheets of paper: the questions, and the key on a page of its own. Clicks move gaps and exchange wrong choices.

import { characters, make } from "../lib/dom.js";
import { t } from "../lib/language.js";
import { shuffled } from "../lib/random.js";

const LETTERS = "ABCDEFGH";
const SHORT_CHARACTERS = 9;

/** From a question and the options of the sheet: which choices it shows, in which order. One alone would be no choice. */
function choicesOf({ gaps, chosen, exchanged }, count, seed) {
  const { answer, wrong } = gaps.get(chosen);
  const shown = wrong.filter((word) => !exchanged.has(word)).slice(0, Math.max(0, count - 1));
  return shown.length ? shuffled([answer, ...shown], seed) : [];
}

/** The numbers of the questions for which the model has no other word, so that they stand there without choices. */
export const withoutChoices = (questions) =>
  questions.flatMap((question, index) => (choicesOf(question, 2, 0).length ? [] : [index + 1]));

/** -> [the questions' sheet, the key's sheet]. `change()` is called after a click has changed a question. */
export function drawSheets(questions, { title, count, seed }, change) {
  const numbered = questions.map((question, index) => ({
    question,
    number: index + 1,
    choices: choicesOf(question, count, seed + question.line),
  }));
  const inTwoColumns = questions.filter(isShort).length * 2 >= questions.length;
  const list = make(
    "ol",
    { className: inTwoColumns ? "questions two" : "questions" },
    ...numbered.map((entry) => drawQuestion(entry, change)),
  );
  const blanks = ["name", "class", "score"].map((field) => make("span", {}, t(`sheet.${field}`)));
  const sheet = make(
    "section",
    { className: "paper", id: "sheet" },
    make("h2", {}, title),
    make("p", { className: "paper-blanks" }, ...blanks),
    list,
  );
  const key = make(
    "section",
    { className: "paper", id: "sheet-key" },
    make("h2", {}, t("sheet.key", { title })),
    make("ol", { className: "answers" }, ...numbered.map(drawAnswer)),
  );
  return [sheet, key];
}

const isShort = ({ pieces }) => characters(pieces.join("")).length <= SHORT_CHARACTERS;

function drawQuestion({ question, number, choices }, change) {
  const text = make(
    "p",
    { className: "question-text" },
    ...question.pieces.map((piece, place) => drawPiece(question, place, piece, change)),
  );
  const parts = choices.length ? [text, drawChoices(question, choices, change)] : [text];
  return make(
    "li",
    { className: isShort(question) ? "question" : "question long" },
    make("span", { className: "question-number" }, `${number}.`),
    make("div", {}, ...parts),
  );
}

function drawPiece(question, place, piece, change) {
  if (place === question.chosen) return drawBlank(question, change);
  if (!question.gaps.has(place)) return piece;
  const onclick = () => move(question, place, change);
  return make("button", { type: "button", tabIndex: -1, onclick }, piece);
}

/** With the keyboard the blank itself is moved, by the arrow keys: a stop a question, not one a character. */
function drawBlank(question, change) {
  const places = [...question.gaps.keys()];
  const onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = places[places.indexOf(question.chosen) + step];
    if (!step || next === undefined) return;
    event.preventDefault();
    move(question, next, change);
    document.getElementById(`blank-${question.line}`).focus();
  };
  const ariaLabel = t("sheet.blank", { answer: question.gaps.get(question.chosen).answer });
  return make("span", {
    id: `blank-${question.line}`,
    className: "blank",
    role: "button",
    tabIndex: 0,
    ariaLabel,
    onkeydown,
  });
}

function move(question, place, change) {
  question.chosen = place;
  change();
}

function drawChoices(question, choices, change) {
  const { answer } = question.gaps.get(question.chosen);
  const even = choices.every((word) => characters(word).length === 1);
  return make(
    "ol",
    { className: even ? "choices even" : "choices" },
    ...choices.map((word, index) => {
      const letter = `${LETTERS[index]}. `;
      if (word === answer) return make("li", {}, letter, make("span", {}, word));
      const onclick = () => {
        question.exchanged.add(word);
        change();
      };
      return make(
        "li",
        {},
        letter,
        make(
          "button",
          { type: "button", onclick, title: t("sheet.exchange"), ariaLabel: t("sheet.exchange_word", { word }) },
          word,
        ),
      );
    }),
  );
}

function drawAnswer({ question, number, choices }) {
  const { answer, score } = question.gaps.get(question.chosen);
  const sentence = question.pieces.map((piece, place) => (place === question.chosen ? make("mark", {}, piece) : piece));
  const words = make("span", {}, ...sentence);
  if (score < 0.2) words.append(" ", make("small", { className: "aside" }, t("sheet.unsure")));
  const name = make("span", { className: "question-number" }, `${number}.`);
  if (!choices.length) return make("li", { className: "lone" }, name, words);
  return make("li", {}, name, make("span", { className: "letter" }, LETTERS[choices.indexOf(answer)]), words);
}
