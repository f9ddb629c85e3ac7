// Fill: asks while one types, shows the bars, and puts in the word that is clicked.

import { byId, make, numberFrom } from "../lib/dom.js";
import { inEachLanguage, percent, t } from "../lib/language.js";
import { tellLimits } from "../lib/limits.js";
import { hasLookAlike, mended } from "../lib/masks.js";
import { fill, patiently, Trouble } from "../lib/service.js";
import { note } from "../lib/troubles.js";
import { drawGaps, readingOf } from "./bars.js";
import { Editor } from "./editor.js";
import { examplesFor } from "./examples.js";
import { drawTiming } from "./timing.js";

const PAUSE_MS = 250;
const LONG_MS = 1500;

class Fill {
  constructor(served) {
    this.served = served;
    this.answered = null;
    this.editor = new Editor(served.mask_token, () => this.#later());
    byId("fill-top-k").max = served.limits.max_top_k;
    this.tellLimits = tellLimits("fill-top-k");
    this.#listen();
    inEachLanguage(() => this.#draw());
  }

  /** What a shared link says; without one, and with an empty box, the first example. */
  take(parameters) {
    const text = parameters.get("text");
    if (text === null && this.editor.text) return;
    const poem = examplesFor(this.served.model).find(({ kind }) => kind === "poem" || kind === "sense");
    byId("fill-top-k").value = parameters.get("top_k") ?? byId("fill-top-k").value;
    this.tellLimits();
    byId("fill-targets").value = parameters.get("targets") ?? "";
    byId("fill-whole").checked = parameters.has("whole");
    byId("fill-joint").checked = parameters.has("joint");
    this.editor.put(text ?? this.#spelt(poem));
    this.#now();
  }

  #listen() {
    const room = byId("view-fill");
    const button = byId("fill-mask");
    byId("fill-form").onsubmit = (event) => {
      event.preventDefault();
      this.#now();
    };
    room.onkeydown = (event) => {
      const asks = event.key === "Enter" && (event.ctrlKey || event.metaKey);
      const masks = event.code === "KeyM" && event.altKey && !event.ctrlKey;
      if (asks || masks) event.preventDefault();
      if (asks) this.#now();
      if (masks) this.editor.mask();
    };
    button.onpointerdown = (event) => event.preventDefault(); // the selection stays
    button.onclick = () => this.editor.mask();
    document.addEventListener("selectionchange", () => this.#nameMaskButton());
    byId("fill-undo").onclick = () => this.editor.undo();
    byId("fill-share").onclick = () => this.#share();
    for (const input of ["fill-top-k", "fill-targets", "fill-whole", "fill-joint"]) {
      byId(input).addEventListener("input", () => this.#later());
    }
  }

  #question() {
    const targets = byId("fill-targets")
      .value.split(/[\s,，、;；]+/u)
      .filter(Boolean);
    const question = { texts: [this.editor.text], top_k: numberFrom(byId("fill-top-k")) };
    if (!targets.length) return byId("fill-joint").checked ? { ...question, joint: true } : question;
    const asked = { ...question, targets, top_k: Math.min(targets.length, this.served.limits.max_top_k) };
    return byId("fill-whole").checked ? { ...asked, score_targets: "pseudo_likelihood" } : asked;
  }

  #later() {
    byId("fill-gaps").classList.add("stale");
    byId("fill-undo").hidden = !this.editor.earlier.length;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#now(), PAUSE_MS);
  }

  async #now() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    const { signal } = asking;
    const question = this.#question();
    const [text] = question.texts;
    if (!text.includes(this.served.mask_token)) return this.#withoutMask(text);
    const long = setTimeout(() => this.#say(make("p", { className: "note" }, t("fill.long"))), LONG_MS);
    signal.addEventListener("abort", () => clearTimeout(long));
    try {
      const {
        results: [{ masks, unknown_tokens: unknown }],
        spent,
      } = await patiently(
        () => fill(question, signal),
        signal,
        (trouble) => {
          clearTimeout(long); // the reason says more than that it takes long
          this.#say(note(trouble, t("trouble.trying")));
        },
      );
      this.answered = { text, gaps: masks, unknown, spent };
      this.#say();
      this.#draw();
    } catch (trouble) {
      if (signal.aborted) return;
      if (!(trouble instanceof Trouble)) throw trouble;
      this.#clear();
      this.#say(note(trouble));
    } finally {
      clearTimeout(long);
    }
  }

  #withoutMask(text) {
    this.#clear();
    if (!text.trim() || !hasLookAlike(text, this.served.mask_token)) return this.#say();
    const mask_token = this.served.mask_token;
    const mend = make(
      "button",
      { type: "button", onclick: () => this.editor.put(mended(text, mask_token)) },
      t("fill.mend", { token: mask_token }),
    );
    this.#say(note(new Trouble("look_alike", { details: { mask_token } }), mend));
  }

  #say(...boxes) {
    byId("fill-trouble").replaceChildren(...boxes);
  }

  #clear() {
    this.answered = null;
    byId("fill-gaps").replaceChildren();
    byId("fill-reading").replaceChildren();
    byId("fill-timing").hidden = true;
  }

  #draw() {
    this.#nameMaskButton();
    byId("fill-examples").replaceChildren(
      ...examplesFor(this.served.model).map((example) =>
        make("button", { type: "button", onclick: () => this.#show(example) }, t(`example.${example.kind}`)),
      ),
    );
    if (!this.answered) return;
    const { text, gaps, unknown, spent } = this.answered;
    const words = gaps.map(({ candidates }) => candidates[0]?.word ?? "");
    const read = () => byId("fill-reading").replaceChildren(...readingOf(text, gaps, words));
    const look = (gap, candidate) => {
      words[gap] = candidate.word;
      read();
    };
    read();
    byId("fill-gaps").classList.remove("stale");
    byId("fill-gaps").replaceChildren(...drawGaps(gaps, look, (candidate) => this.#take(candidate)));
    if (unknown) this.#say(make("p", { className: "note" }, t("fill.unknown", { tokens: unknown })));
    byId("fill-said").textContent = gaps
      .map(({ candidates: [best] }, index) =>
        t("fill.said", { number: index + 1, word: best?.word, share: percent(best?.score ?? 0) }),
      )
      .join(" ");
    drawTiming(spent);
  }

  /** Only into the text that was asked about: one that was changed meanwhile gets an answer of its own at once. */
  #take(candidate) {
    if (this.editor.text === this.answered?.text) this.editor.put(candidate.filled_text);
  }

  #show(example) {
    byId("fill-targets").value = example.targets ?? "";
    this.editor.put(this.#spelt(example));
    this.#now();
  }

  #spelt(example) {
    return example.text.replaceAll("{mask}", this.served.mask_token);
  }

  #nameMaskButton() {
    const selected = document.activeElement === this.editor.area && this.editor.selected;
    byId("fill-mask").textContent = t(selected ? "fill.mask_selected" : "fill.mask", { token: this.served.mask_token });
    byId("fill-mask").title = t("fill.mask_keys");
  }

  async #share() {
    const told = new URLSearchParams({ text: this.editor.text, top_k: numberFrom(byId("fill-top-k")) });
    if (byId("fill-targets").value) told.set("targets", byId("fill-targets").value);
    for (const option of ["whole", "joint"]) if (byId(`fill-${option}`).checked) told.set(option, "1");
    history.replaceState(null, "", `#fill?${told}`);
    let words = "fill.link_here";
    try {
      await navigator.clipboard.writeText(location.href);
      words = "fill.link_copied";
    } catch {
      /* not allowed, or not over HTTPS: the address bar has it */
    }
    byId("fill-share").textContent = t(words);
    setTimeout(() => {
      byId("fill-share").textContent = t("fill.share");
    }, 4000);
  }
}

export const openFill = (served) => new Fill(served);
