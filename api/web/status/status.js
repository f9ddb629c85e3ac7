// Status: what the front-end that answered knows, once a second while somebody looks.

import { byId, make } from "../lib/dom.js";
import { known, number, percent, t } from "../lib/language.js";
import { wordsOf } from "../lib/troubles.js";
import { sparkline } from "./sparkline.js";

const REMEMBERED = 60;

class Status {
  constructor(served) {
    this.served = served;
    this.backlogs = [];
  }

  /** Called by the pulse and in each language; a second look at the same answer is no new sample. */
  show(status, trouble) {
    if (trouble) return this.#banner(...wordsOf(trouble), false);
    if (status !== this.shown) this.backlogs = [...this.backlogs, status.backlog].slice(-REMEMBERED);
    this.shown = status;
    if (byId("view-status").hidden) return;
    const nobody = status.reason.startsWith("no worker");
    if (nobody) this.#banner(...wordsOf({ type: "no_worker" }), false);
    else if (status.reason) this.#banner(t("status.not_serving"), t("status.reason", { reason: status.reason }), false);
    else this.#banner(t("status.serving"), t("status.serving_model", { model: this.served.model }), true);
    byId("status-figures").replaceChildren(...this.#figures(status));
    byId("status-workers").replaceChildren(...workerRows(status.workers));
    byId("status-model").replaceChildren(...this.#facts());
    byId("status-source").textContent = t("status.source", { id: status.front_end, seconds: status.recent.window_s });
  }

  /** Only what changes is written: a screen reader would read the same banner each second. */
  #banner(what, more, well) {
    const banner = byId("status-banner");
    banner.classList.toggle("unwell", !well);
    if (banner.textContent === what + more) return;
    banner.replaceChildren(make("strong", {}, what), make("span", {}, more));
  }

  #figures({ recent, backlog, oldest_s, in_flight }) {
    const ms = (value) => (value === null ? "–" : number(value, value < 10 ? 1 : 0));
    const failed = recent.failed ? t("status.failed", { failed: number(recent.failed) }) : t("status.none_failed");
    return [
      figure(
        t("status.requests"),
        number(recent.requests_s, 1),
        t("status.a_second"),
        failed,
        sparkline(recent.requests_by_second, REMEMBERED, t("status.requests_line")),
      ),
      figure(
        t("status.latency"),
        ms(recent.p50_ms),
        "ms",
        t("status.p99", { ms: ms(recent.p99_ms) }),
        sparkline(recent.p50_ms_by_second, REMEMBERED, t("status.latency_line")),
      ),
      figure(
        t("status.queue"),
        number(backlog),
        t("status.texts", { backlog }),
        t("status.oldest", { seconds: number(oldest_s, 1), here: number(in_flight) }),
        sparkline(this.backlogs, REMEMBERED, t("status.queue_line")),
      ),
    ];
  }

  #facts() {
    const { model, revision, architecture, mask_token, vocabulary_size, version, limits } = this.served;
    const told = {
      model,
      revision,
      architecture,
      mask_token,
      vocabulary_size: number(vocabulary_size),
      max_tokens: number(limits.max_tokens),
      max_texts: number(limits.max_texts),
      version,
    };
    return Object.entries(told).map(([name, value]) =>
      make("div", {}, make("dt", {}, t(`status.fact.${name}`)), make("dd", {}, value)),
    );
  }
}

function figure(title, value, unit, noteBelow, line) {
  return make(
    "section",
    { className: "figure card" },
    make("h2", {}, title),
    make("p", { className: "figure-value" }, value, " ", make("small", {}, unit)),
    line,
    make("p", { className: "figure-note" }, noteBelow),
  );
}

function workerRows(workers) {
  if (!workers.length) return [make("tr", {}, make("td", { colSpan: 7 }, t("status.no_workers")))];
  return workers.map((worker) => {
    const words = known(`state.${worker.state}`) ? t(`state.${worker.state}`) : worker.state;
    const cells = [
      ["tokens_s", measured(worker.tokens_s, number)],
      ["batch_requests", measured(worker.batch_requests, (value) => number(value, 1))],
      ["padding", measured(worker.padding_ratio, (ratio) => percent(1 - 1 / ratio))],
    ].map(([name, value]) => cell(name, "number", value));
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, worker.worker),
      cell("state", worker.state === "ready" ? "state well" : "state", words),
      cell("engine", "", worker.engine),
      ...cells,
      cell("busy", "", ...busy(worker.busy)),
    );
  });
}

/** On a phone a worker is a card of its own, and each of its values has its name beside it. */
function cell(name, className, ...content) {
  const made = make("td", { className }, make("span", {}, ...content));
  made.dataset.name = t(`status.${name}`);
  return made;
}

/** Zero means that there has been no batch lately, or none at all. */
const measured = (value, words) => (value ? words(value) : "–");

function busy(share) {
  const bar = make("span", { className: "bar", ariaHidden: "true" });
  bar.style.setProperty("--share", share);
  return [bar, percent(share)];
}

export function openStatus(served) {
  const status = new Status(served);
  return (told, trouble) => status.show(told, trouble);
}
