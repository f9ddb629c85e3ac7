// Worksheet: a teacher's idioms or sentences become a cloze test with a key, ready for the printer.

import { byId } from "../lib/dom.js";
import { inEachLanguage, language, t } from "../lib/language.js";
import { shuffled } from "../lib/random.js";
import { patiently, Trouble } from "../lib/service.js";
import { note } from "../lib/troubles.js";
import { linesOf } from "../batch/lines.js";
import { MOST_GAPS, questionOf } from "./blanks.js";
import { drawLeft } from "./left.js";
import { drawSheets, withoutChoices } from "./sheet.js";

const MOST_LINES = 100;

class Worksheet {
  constructor(served) {
    this.token = served.mask_token;
    this.questions = [];
    this.left = [];
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
    const all = linesOf(byId("worksheet-text").value);
    const lines = all.slice(0, MOST_LINES);
    const tooMany = new Trouble("too_many_lines", { details: { limit: MOST_LINES } });
    this.making?.abort();
    const making = new AbortController();
    this.making = making;
    const troubles = byId("worksheet-trouble");
    const made = [];
    const left = [];
    troubles.replaceChildren();
    for (const [index, { line, text }] of lines.entries()) {
      this.#say("worksheet.making", { done: index, total: lines.length });
      try {
        const question = await patiently(
          () => questionOf(text, this.token, making.signal),
          making.signal,
          (trouble) => troubles.replaceChildren(note(trouble, t("trouble.trying"))),
        );
        troubles.replaceChildren();
        made.push({ ...question, line, exchanged: new Set() });
      } catch (trouble) {
        if (making.signal.aborted) return;
        if (!(trouble instanceof Trouble)) throw trouble;
        if (trouble.status === 401) return troubles.replaceChildren(note(trouble));
        left.push({ line, trouble });
      }
    }
    this.questions = made;
    this.left = [...left, ...all.slice(MOST_LINES).map(({ line }) => ({ line, trouble: tooMany }))];
    this.#say("worksheet.made", { questions: made.length });
    this.#tell();
    this.#draw();
  }

  #say(key, values) {
    this.said = [key, values];
    byId("worksheet-said").textContent = t(key, values);
  }

  #tell() {
    byId("worksheet-trouble").replaceChildren(...drawLeft(this.left, this.questions, { gaps: MOST_GAPS }));
  }

  #title() {
    return byId("worksheet-title").value.trim() || t("sheet.title");
  }

  #draw() {
    const any = this.questions.length > 0;
    for (const part of ["shuffle", "tools"]) byId(`worksheet-${part}`).hidden = !any;
    byId("worksheet-none").hidden = any;
    if (!any) return byId("worksheet-sheets").replaceChildren();
    const inOrder = byId("worksheet-order").value === "shuffled" ? shuffled(this.questions, this.seed) : this.questions;
    const options = { title: this.#title(), count: Number(byId("worksheet-choices").value), seed: this.seed * 1009 };
    const lone = options.count ? withoutChoices(inOrder) : [];
    byId("worksheet-lone").hidden = !lone.length;
    byId("worksheet-lone").textContent = t("worksheet.lone", { numbers: lone.join(", "), count: lone.length });
    byId("worksheet-sheets").replaceChildren(...drawSheets(inOrder, options, () => this.#draw()));
  }

  /** Until somebody writes something of their own, title and lines are examples in the language of the page. */
  #offer() {
    const text = byId("worksheet-text");
    if (!text.value) text.value = t("worksheet.example");
    byId("worksheet-title").placeholder = t("sheet.title");
    byId("worksheet-title").lang = language();
    if (this.said) this.#say(...this.said);
    if (this.questions.length || this.left.length) this.#tell();
    this.#draw();
  }
}

export const openWorksheet = (served) => new Worksheet(served);
