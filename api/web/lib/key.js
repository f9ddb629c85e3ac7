// The API key, where the service wants one: asked for once, kept for this tab alone, sent to this service alone.

import { byId } from "./dom.js";
import { t } from "./language.js";
import { storage } from "./storage.js";

const KEPT = "fillmask.key";
const SENDABLE = /^[\x20-\x7e]+$/; // of anything else a browser makes no header, and no key has it

const kept = storage("sessionStorage");

let asking = null;

export const key = () => kept.getItem(KEPT);

/** The service does not take that key: it is forgotten, unless another one was put in its place meanwhile. */
export function refused(used) {
  if (key() === used) kept.removeItem(KEPT);
}

/** Shows the dialog, once for all who ask at the same time. Resolves to whether there is a key now. */
export function askForKey(errorType) {
  asking ??= shown(errorType).finally(() => {
    asking = null;
  });
  return asking;
}

function shown(errorType) {
  const dialog = byId("key-dialog");
  const input = byId("key-input");
  byId("key-why").textContent = t(errorType === "no_api_key" ? "trouble.no_api_key" : "trouble.bad_api_key");
  dialog.showModal();
  input.value = "";
  return new Promise((resolve) => {
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      const typed = input.value.trim();
      if (!SENDABLE.test(typed)) {
        byId("key-why").textContent = t("trouble.bad_api_key");
        return;
      }
      kept.setItem(KEPT, typed);
      dialog.close();
    };
    byId("key-cancel").onclick = () => dialog.close();
    dialog.onclose = () => resolve(key() !== null);
  });
}
