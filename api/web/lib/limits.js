// A number field that takes less than was typed says so, beside it, and to a screen reader.

import { byId, numberFrom } from "./dom.js";
import { inEachLanguage, t } from "./language.js";

/** `id` is the field's; its words come into the element `id`-limit. */
export function tellLimits(id) {
  const input = byId(id);
  const tell = () => {
    const used = numberFrom(input);
    const kept = input.value !== "" && input.valueAsNumber === used;
    input.ariaInvalid = String(!kept);
    byId(`${id}-limit`).textContent = kept ? "" : t("limit.number", { min: input.min, max: input.max, used });
  };
  input.addEventListener("input", tell);
  inEachLanguage(tell);
  return tell;
}
