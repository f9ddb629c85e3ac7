// Puts the page together: what is served here, which language, which of the four views. The views know nothing of each other.

import { openBatch } from "./batch/batch.js";
import { openFill } from "./fill/fill.js";
import { byId, make } from "./lib/dom.js";
import { inEachLanguage, switchLanguage, t, translate } from "./lib/language.js";
import { Pulse } from "./lib/pulse.js";
import { facts, patiently, Trouble } from "./lib/service.js";
import { note } from "./lib/troubles.js";
import { openStatus } from "./status/status.js";
import { openWorksheet } from "./worksheet/worksheet.js";

const NAMES = ["fill", "batch", "worksheet", "status"];

const tabs = new Map(NAMES.map((name) => [name, byId(`tab-${name}`)]));

/** The fragment is `#name` or `#name?text=...`: it never reaches a server, nor its log. */
function asked() {
  const [name, query] = location.hash.slice(1).split("?", 2);
  return { name: tabs.has(name) ? name : "fill", parameters: new URLSearchParams(query ?? "") };
}

function show(name) {
  for (const [other, tab] of tabs) {
    tab.ariaSelected = String(other === name);
    tab.tabIndex = other === name ? 0 : -1;
    byId(`view-${other}`).hidden = other !== name;
  }
}

function onTabKey(event) {
  const at = NAMES.indexOf(asked().name);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
  if (to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  const next = NAMES.at(to % NAMES.length);
  location.hash = next;
  tabs.get(next).focus();
}

function healthOf(status, trouble) {
  if (trouble) return "unreachable";
  return status.reason ? "unwell" : "well";
}

async function start() {
  translate();
  show(asked().name);
  for (const [name, tab] of tabs)
    tab.onclick = () => {
      location.hash = name;
    };
  document.querySelector("[role=tablist]").onkeydown = onTabKey;
  byId("language").onclick = switchLanguage;

  const served = await patiently(facts, new AbortController().signal, (trouble) =>
    byId("fill-trouble").replaceChildren(note(trouble)),
  );
  byId("fill-trouble").replaceChildren();
  byId("model").textContent = served.model;

  const fill = openFill(served);
  openBatch(served);
  openWorksheet(served);
  const showStatus = openStatus(served);

  let last = null;
  const pulse = new Pulse((status, trouble) => {
    last = { status, trouble };
    tell();
  });
  const tell = () => {
    if (!last) return;
    const health = healthOf(last.status, last.trouble);
    const words = t(`health.${health}`);
    byId("health").classList.toggle("well", health === "well");
    if (byId("health").textContent !== words) byId("health").textContent = words;
    showStatus(last.status, last.trouble);
  };
  inEachLanguage(tell);

  const follow = () => {
    const { name, parameters } = asked();
    show(name);
    pulse.lookedAt(name === "status");
    if (name === "fill") fill.take(parameters);
  };
  addEventListener("hashchange", follow);
  follow();
  document.body.dataset.ready = "yes";
}

start().catch((trouble) => {
  if (!(trouble instanceof Trouble)) throw trouble;
  const again = make("button", { type: "button", onclick: () => location.reload() }, t("frame.again"));
  byId("fill-trouble").replaceChildren(note(trouble, again));
});
