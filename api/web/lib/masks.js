// The mask token in a text: finding it, mending one that was typed wrong, and how many a selection becomes.

import { characters } from "./dom.js";

const LOOK_ALIKES =
  /[[<{(【〔「［＜（]\s*(?:mask|blank)\s*[\]>})】〕」］＞）]|_{2,}|＿{1,}|﹍{2,}|（\s+）|\(\s+\)|□/giu;

const HAN = /\p{Script=Han}/u;

export const isHan = (character) => HAN.test(character);

/** Whether something looks like a mask, but is not this model's. */
export const hasLookAlike = (text, token) => mended(text, token) !== text;

/** The text with each look-alike turned into this model's mask. */
export const mended = (text, token) => text.replace(LOOK_ALIKES, (found) => (found === token ? found : token));

/** A model for Chinese has a token a character: as many masks. Another word is one mask. */
export function masksFor(selection, token) {
  const han = characters(selection).filter(isHan).length;
  return token.repeat(Math.max(1, han));
}
