// Asks for the service's state: often while somebody looks at it, seldom otherwise, never while the page is hidden.

import { status } from "./service.js";

const LOOKED_AT_MS = 1000;
const OTHERWISE_MS = 5000;

/** A front-end that is there answers in milliseconds; one that is silent for so long counts as unreachable. */
const PATIENCE_MS = 3000;

export class Pulse {
  /** `tell(status, trouble)`: one of them is null. */
  constructor(tell) {
    this.tell = tell;
    this.everyMs = OTHERWISE_MS;
    document.addEventListener("visibilitychange", () => this.beat());
  }

  lookedAt(yes) {
    this.everyMs = yes ? LOOKED_AT_MS : OTHERWISE_MS;
    this.beat();
  }

  async beat() {
    clearTimeout(this.timer);
    const beat = {};
    this.latest = beat; // what an earlier one brings in after this is not told any more
    if (document.hidden) return;
    const told = await status(AbortSignal.timeout(PATIENCE_MS)).then(
      (answer) => [answer, null],
      (trouble) => [null, trouble],
    );
    if (this.latest !== beat) return;
    this.tell(...told);
    this.timer = setTimeout(() => this.beat(), this.everyMs);
  }
}
