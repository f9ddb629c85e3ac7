// Gives the browser a file that was made here; nothing of it leaves this machine.

import { make } from "./dom.js";

export function download(name, mediaType, content) {
  const address = URL.createObjectURL(new Blob([content], { type: mediaType }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000); // the browser may still be asking where to put it
}
