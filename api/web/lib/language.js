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

/** The words for a key; {name} in them becomes values.name. */
export function t(key, values = {}) {
  return TEXTS[current][key].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
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
