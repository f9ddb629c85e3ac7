// Worksheet: a teacher's idioms or sentences become a cloze test with a key, ready for the printer.

import { byId } from "../lib/dom.js";
import { inEachLanguage, language, t } from "../lib/language.js";
import { shuffled } from "../lib/random.js";
import { patiently, Trouble } from "../lib/service.js";
import { note } from "../lib/troubles.js";
import { linesOf } from "../batch/lines.js";
import { questionOf } from "./blanks.js";
import { drawSheets } from "./sheet.js";

const MOST_LINES = 100;

class Worksheet {
  constructor(served) {
    this.token = served.mask_token;
    this.questions = [];
    this.seed = 1;
    this.#listen();
    inEachLanguage(() => this.#offer());
  }

  #listen() {
    byId("worksheet-form").onsubmit = (event) => {
      event.preventDefault();
      this.#make();
    };
    byId("worksheet-shuffle").onclick = () => {
      this.seed += 1;
      this.#draw();
    };
    byId("worksheet-print").onclick = () => print();
    for (const option of ["title", "choices", "order"])
      byId(`worksheet-${option}`).addEventListener("input", () => this.#draw());
    addEventListener("beforeprint", () => {
      if (this.questions.length) document.title = this.#title();
    }); // names the PDF
    addEventListener("afterprint", () => {
      document.title = "fillmask";
    });
  }

  async #make() {
    const lines = linesOf(byId("worksheet-text").value).slice(0, MOST_LINES);
    this.making?.abort();
    const making = new AbortController();
    this.making = making;
    const troubles = byId("worksheet-trouble");
    const made = [];
    const left = [];
    troubles.replaceChildren();
    for (const [index, line] of lines.entries()) {
      this.#say("worksheet.making", { done: index, total: lines.length });
      try {
        const question = await patiently(
          () => questionOf(line, this.token, making.signal),
          making.signal,
          (trouble) => troubles.replaceChildren(note(trouble, t("trouble.trying"))),
        );
        troubles.replaceChildren();
        if (question) made.push({ ...question, line: index + 1, exchanged: new Set() });
      } catch (trouble) {
        if (making.signal.aborted) return;
        if (!(trouble instanceof Trouble)) throw trouble;
        if (trouble.status === 401) return troubles.replaceChildren(note(trouble));
        left.push(index + 1);
        troubles.replaceChildren(note(trouble));
      }
    }
    this.questions = made;
    this.#say(left.length ? "worksheet.left_out" : "worksheet.made", {
      questions: made.length,
      lines: left.join(", "),
    });
    this.#draw();
  }

  #say(key, values) {
    this.said = [key, values];
    byId("worksheet-said").textContent = t(key, values);
  }

  #title() {
    return byId("worksheet-title").value.trim() || t("sheet.title");
  }

  #draw() {
    const any = this.questions.length > 0;
    for (const part of ["shuffle", "tools"]) byId(`worksheet-${part}`).hidden = !any;
    if (!any) return byId("worksheet-sheets").replaceChildren();
    const inOrder = byId("worksheet-order").value === "shuffled" ? shuffled(this.questions, this.seed) : this.questions;
    const options = { title: this.#title(), count: Number(byId("worksheet-choices").value), seed: this.seed * 1009 };
    byId("worksheet-sheets").replaceChildren(...drawSheets(inOrder, options, () => this.#draw()));
  }

  /** Until somebody writes something of their own, title and lines are examples in the language of the page. */
  #offer() {
    const text = byId("worksheet-text");
    if (!text.value) text.value = t("worksheet.example");
    byId("worksheet-title").placeholder = t("sheet.title");
    byId("worksheet-title").lang = language();
    if (this.said) this.#say(...this.said);
    this.#draw();
  }
}

export const openWorksheet = (served) => new Worksheet(served);
