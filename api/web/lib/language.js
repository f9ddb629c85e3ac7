// Which language, and the words in it. Elements name their words: data-text, data-label, data-placeholder, data-title.

import en from "../texts/en.js";
import zh from "../texts/zh.js";
import { storage } from "./storage.js";

const TEXTS = { zh, en };
const TAGS = { zh: "zh-Hans", en: "en" };
const REMEMBERED = "fillmask.language";

const kept = storage("localStorage");

let current = kept.getItem(REMEMBERED) ?? (navigator.language.startsWith("zh") ? "zh" : "en");
if (!(current in TEXTS)) current = "en";

export const language = () => current;

export const known = (key) => key in TEXTS[current];

/** The words for a key; {name} in them becomes values.name, and {name:line|lines} what goes with one, or with more. */
export function t(key, values = {}) {
  return TEXTS[current][key].replace(/\{(\w+)(?::([^|}]*)\|([^}]*))?\}/g, (_, name, one, more) => {
    if (one === undefined) return values[name] ?? "";
    return String(values[name]) === "1" ? one : more;
  });
}

/** Sentences one after another: with a space between, but in Chinese. */
export const joined = (...sentences) => sentences.filter(Boolean).join(current === "zh" ? "" : " ");

const MOST_RANGES = 8;

/** [3, 5, 6, 7] as "lines 3, 5–7"; of very many only the first are named. */
export function lineNumbers(lines) {
  const ranges = [];
  for (const line of lines) {
    if (ranges.at(-1)?.[1] === line - 1) ranges.at(-1)[1] = line;
    else ranges.push([line, line]);
  }
  const named = ranges.slice(0, MOST_RANGES).map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`));
  const some = ranges.length > MOST_RANGES ? "lines.some" : "lines.all";
  return t(some, { lines: named.join(t("lines.between")), count: lines.length });
}

/** Calls `draw` now and whenever the language changes. */
export function inEachLanguage(draw) {
  document.addEventListener("languagechange", draw);
  draw();
}

export function switchLanguage() {
  current = current === "zh" ? "en" : "zh";
  kept.setItem(REMEMBERED, current);
  translate();
  document.dispatchEvent(new Event("languagechange"));
}

export function translate() {
  document.documentElement.lang = TAGS[current];
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const element of document.querySelectorAll("[data-label]")) element.ariaLabel = t(element.dataset.label);
  for (const element of document.querySelectorAll("[data-title]")) element.title = t(element.dataset.title);
  for (const element of document.querySelectorAll("[data-placeholder]")) {
    element.placeholder = t(element.dataset.placeholder);
  }
}

export const percent = (share) =>
  new Intl.NumberFormat(TAGS[current], { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 }).format(
    share,
  );

export const number = (value, digits = 0) =>
  new Intl.NumberFormat(TAGS[current], { maximumFractionDigits: digits }).format(value);
