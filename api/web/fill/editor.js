// The text box: marks behind the masks, masks put in at the cursor or instead of what is selected, one step back.

import { byId, make } from "../lib/dom.js";
import { masksFor } from "../lib/masks.js";

export class Editor {
  constructor(token, onText) {
    this.token = token;
    this.onText = onText;
    this.area = byId("fill-text");
    this.marks = byId("fill-marks");
    this.earlier = [];
    this.area.addEventListener("input", () => this.#changed());
  }

  get text() {
    return this.area.value;
  }

  get selected() {
    return this.area.value.slice(this.area.selectionStart, this.area.selectionEnd).trim();
  }

  /** Another text instead; `undo` brings the one before back. */
  put(text) {
    if (text === this.text) return;
    if (this.text) this.earlier.push(this.text);
    this.area.value = text;
    this.#changed();
  }

  undo() {
    this.area.value = this.earlier.pop();
    this.#changed();
  }

  /** The selection becomes masks; without one a mask comes in where the cursor is. The browser's own undo knows of it. */
  mask() {
    const masks = this.selected ? masksFor(this.selected, this.token) : this.token;
    this.area.focus();
    if (!document.execCommand("insertText", false, masks)) {
      this.area.setRangeText(masks, this.area.selectionStart, this.area.selectionEnd, "end");
      this.#changed();
    }
  }

  #changed() {
    const [first, ...others] = this.text.split(this.token);
    const marked = others.flatMap((part) => [make("mark", {}, this.token), part]);
    this.marks.replaceChildren(first, ...marked, "\u200b"); // a last empty line has its height, too
    this.onText();
  }
}
