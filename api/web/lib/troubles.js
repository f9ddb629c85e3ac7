// What went wrong, in plain words, and what to do about it: for every error_type that the service may give.

import { make } from "./dom.js";
import { known, t } from "./language.js";

/** -> [what happened, what to do]; a code that this page does not know is told with the service's own sentence. */
export function wordsOf(trouble) {
  const name = known(`trouble.${trouble.type}`) ? trouble.type : "other";
  const values = { ...trouble.details, sentence: trouble.sentence };
  return [t(`trouble.${name}`, values), t(`trouble.${name}.todo`, values)];
}

/** A box for the page. `buttons` are offered below the words. */
export function note(trouble, ...buttons) {
  const [what, todo] = wordsOf(trouble);
  const box = make("div", { className: "note" }, make("strong", {}, what), make("span", {}, todo));
  box.dataset.type = trouble.type;
  if (trouble.requestId) box.append(make("small", {}, t("trouble.request_id", { id: trouble.requestId })));
  if (buttons.length) box.append(make("div", { className: "tools" }, ...buttons));
  return box;
}
