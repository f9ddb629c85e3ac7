// What of a teacher's lines is not on the sheet, or not as it was written: which lines, why, and what to do.

import { make } from "../lib/dom.js";
import { joined, lineNumbers, t } from "../lib/language.js";
import { wordsOf } from "../lib/troubles.js";

/** `left` is [{line, trouble}, ...], `questions` may have remarks. -> a note for each of both, if there is anything to tell. */
export function drawLeft(left, questions, values) {
  const refused = left.map(({ line, trouble }) => [joined(...wordsOf(trouble)), line]);
  const remarks = questions.flatMap(({ line, remark }) =>
    remark ? [[t(`worksheet.remark.${remark}`, values), line]] : [],
  );
  return [
    ...told(t("worksheet.left", { lines: left.length }), refused, "left"),
    ...told(t("worksheet.remarks"), remarks, "remarks"),
  ];
}

function told(title, reasonsOfLines, className) {
  const reasons = new Map();
  for (const [reason, line] of reasonsOfLines) reasons.set(reason, [...(reasons.get(reason) ?? []), line]);
  if (!reasons.size) return [];
  const entries = [...reasons].map(([reason, lines]) =>
    make("li", {}, make("b", {}, lineNumbers(lines)), ` ${reason}`),
  );
  return [make("div", { className: `note ${className}` }, make("strong", {}, title), make("ul", {}, ...entries))];
}
