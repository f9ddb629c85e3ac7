// Where the time of the last answer went.

import { byId, make } from "../lib/dom.js";
import { number, t } from "../lib/language.js";

const PARTS = ["tokenize", "queue", "inference", "rest"];

export function drawTiming(spent) {
  const ms = (part) => spent[`${part}Ms`];
  const total = PARTS.reduce((sum, part) => sum + ms(part), 0);
  byId("fill-timing").hidden = false;
  byId("timing-bar").replaceChildren(
    ...PARTS.map((part) => {
      const piece = make("span", { className: part });
      piece.style.setProperty("--share", ms(part) / total);
      return piece;
    }),
  );
  const parts = PARTS.map((part) => [t(`timing.${part}`), t("timing.ms", { ms: number(ms(part), 2) })]);
  const batch = [t("timing.batch"), number(spent.batch)];
  byId("timing-parts").replaceChildren(
    ...[...parts, batch].flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
  );
}
