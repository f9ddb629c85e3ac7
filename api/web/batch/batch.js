// Batch: lines that are pasted or dropped, a page of them a request, a table that grows, and files to take away.

import { byId, make, numberFrom } from "../lib/dom.js";
import { writeCsv } from "../lib/csv.js";
import { download } from "../lib/download.js";
import { inEachLanguage, joined, lineNumbers, number, t } from "../lib/language.js";
import { tellLimits } from "../lib/limits.js";
import { Trouble } from "../lib/service.js";
import { note, wordsOf } from "../lib/troubles.js";
import { likeliest, linesOf, readFile } from "./lines.js";
import { fillAll } from "./run.js";
import { asObjects, asRows, drawRows, MOST_ROWS } from "./table.js";

const MOST_BYTES = 20 * 1024 * 1024;

class Batch {
  constructor(served) {
    this.served = served;
    this.outcomes = [];
    this.first = 1;
    byId("batch-top-k").max = Math.min(20, served.limits.max_top_k);
    tellLimits("batch-top-k");
    this.#listen();
    inEachLanguage(() => this.#draw());
  }

  #listen() {
    const drop = byId("batch-drop");
    byId("batch-form").onsubmit = (event) => {
      event.preventDefault();
      this.#run();
    };
    byId("batch-cancel").onclick = () => this.running.abort();
    byId("batch-text").oninput = () => {
      this.first = 1; // what is written here has the numbers that it has here, not those of a file
      this.#count();
    };
    byId("batch-file").onchange = ({ target }) => this.#read(target.files);
    drop.ondragover = (event) => {
      event.preventDefault();
      drop.classList.add("over");
    };
    drop.ondragleave = () => drop.classList.remove("over");
    drop.ondrop = (event) => {
      drop.classList.remove("over");
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      this.#read(event.dataTransfer.files);
    };
    byId("batch-column").onchange = ({ target }) => this.#choose(Number(target.value));
    byId("batch-csv").onclick = () =>
      download("fillmask.csv", "text/csv;charset=utf-8", writeCsv(asRows(this.outcomes, this.topK)));
    byId("batch-json").onclick = () =>
      download("fillmask.json", "application/json", JSON.stringify(asObjects(this.outcomes), null, 1));
  }

  #isMasked = (text) => text.includes(this.served.mask_token);

  async #read([file, ...others]) {
    byId("batch-trouble").replaceChildren();
    if (!file) return;
    try {
      if (file.size > MOST_BYTES) throw new Trouble("file_too_large");
      this.#offer(await readFile(file, this.#isMasked));
      if (others.length) throw new Trouble("several_files", { details: { name: file.name } });
    } catch (trouble) {
      if (trouble instanceof DOMException) return this.#complain(new Trouble("file_unreadable")); // moved, or a folder
      if (!(trouble instanceof Trouble)) throw trouble;
      this.#complain(trouble);
    } finally {
      byId("batch-file").value = "";
    }
  }

  #offer({ columns, header, first }) {
    this.columns = columns;
    this.first = first;
    const names = columns.map((_, index) => header?.[index] || t("batch.column_number", { number: index + 1 }));
    byId("batch-column").replaceChildren(...names.map((name, value) => make("option", { value }, name)));
    byId("batch-column-field").hidden = columns.length < 2;
    this.#choose(likeliest(columns, this.#isMasked));
  }

  #choose(column) {
    byId("batch-column").value = column;
    byId("batch-text").value = this.columns[column];
    this.#count();
  }

  #lines() {
    return linesOf(byId("batch-text").value, this.first);
  }

  #count() {
    const lines = this.#lines();
    const masked = lines.filter(({ text }) => this.#isMasked(text)).length;
    byId("batch-count").textContent = lines.length
      ? t("batch.count", { lines: number(lines.length), masked: number(masked) })
      : "";
  }

  async #run() {
    const lines = this.#lines();
    const masked = lines.filter(({ text }) => this.#isMasked(text));
    byId("batch-trouble").replaceChildren();
    if (!masked.length)
      return this.#complain(new Trouble("no_mask", { details: { mask_token: this.served.mask_token } }));
    this.running = new AbortController();
    this.topK = numberFrom(byId("batch-top-k"));
    this.outcomes = [];
    this.skipped = lines.filter(({ text }) => !this.#isMasked(text)).map(({ line }) => line);
    byId("batch-rows").replaceChildren();
    this.#busy(true);
    this.#say(masked.length);
    const waiting = (trouble) => {
      byId("batch-said").textContent = joined(wordsOf(trouble)[0], t("trouble.trying"));
    };
    try {
      for await (const page of fillAll(masked, this.topK, this.served, this.running.signal, waiting)) {
        this.outcomes.push(...page);
        drawRows(page);
        this.#say(masked.length);
      }
    } catch (trouble) {
      if (trouble instanceof Trouble) this.#complain(trouble);
      else if (trouble.name !== "AbortError") throw trouble;
    } finally {
      this.outcomes.sort((one, other) => one.line - other.line); // refused lines came when they were refused
      this.#busy(false);
      this.#say(masked.length);
      this.#redraw();
    }
  }

  #busy(yes) {
    byId("batch-go").disabled = yes;
    byId("batch-cancel").hidden = !yes;
    byId("batch-progress").hidden = false;
    byId("batch-outcome").hidden = false;
    byId("batch-csv").disabled = yes;
    byId("batch-json").disabled = yes;
  }

  #say(total) {
    const done = this.outcomes.length;
    const failed = this.outcomes.filter(({ trouble }) => trouble).length;
    const words = [t("batch.done", { done: number(done), total: number(total) })];
    if (failed) words.push(t("batch.failed", { failed: number(failed) }));
    if (this.skipped.length) words.push(t("batch.skipped", { lines: lineNumbers(this.skipped) }));
    if (this.running.signal.aborted) words.push(t("batch.cancelled"));
    byId("batch-bar").max = total;
    byId("batch-bar").value = done;
    byId("batch-said").textContent = joined(...words);
    byId("batch-more").hidden = done <= MOST_ROWS;
    byId("batch-more").textContent = t("batch.more", { rows: number(MOST_ROWS) });
    this.total = total;
  }

  #redraw() {
    byId("batch-rows").replaceChildren();
    drawRows(this.outcomes);
  }

  #complain(trouble) {
    byId("batch-trouble").replaceChildren(note(trouble));
  }

  #draw() {
    byId("batch-text").placeholder = t("batch.placeholder", { mask: this.served.mask_token });
    this.#count();
    if (!this.total) return;
    this.#redraw();
    this.#say(this.total);
  }
}

export const openBatch = (served) => new Batch(served);
