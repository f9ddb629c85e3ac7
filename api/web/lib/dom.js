// The page's only way to make elements. Strings become text, never HTML: what users type and models say cannot be code.

export const byId = (id) => document.getElementById(id);

/** make("button", {type: "button", onclick}, "words", icon): an element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Code points, as the service counts them: a character outside the basic plane is one, not two. */
export const characters = (text) => Array.from(text);

/** A number from a field, within its limits; its default if there is none. lib/limits.js says so where it is another. */
export function numberFrom(input) {
  const number = Math.round(input.valueAsNumber);
  if (Number.isNaN(number)) return Number(input.defaultValue);
  return Math.min(Math.max(number, Number(input.min)), Number(input.max || Infinity));
}
