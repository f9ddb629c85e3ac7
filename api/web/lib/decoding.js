// A file's bytes -> text: UTF-8, UTF-16 or GB 18030, whichever they are; what is no text at all is refused, not shown as noise.

import { Trouble } from "./service.js";

const BYTE_ORDER_MARKS = [
  ["utf-8", [0xef, 0xbb, 0xbf]],
  ["utf-16le", [0xff, 0xfe]],
  ["utf-16be", [0xfe, 0xff]],
];

/** Text has no controls but its breaks, tabs and the end mark of old systems; nor what Unicode has not, or keeps for itself. */
const ILLEGIBLE = /[^\P{Cc}\t\n\v\f\r\x1a]|[\p{Cn}\p{Co}\p{Cs}\ufffd]/u;

/** PDF, RTF, zip as in .docx and .xlsx, and Office before that: files that people take for text, and whose bytes could be. */
const OTHER_FORMATS = /^(?:%PDF-|\{\\rtf|PK\x03\x04|\xd0\xcf\x11\xe0)/;

/** Throws a Trouble: file_empty, file_no_text. */
export function decoded(buffer) {
  const bytes = new Uint8Array(buffer);
  if (OTHER_FORMATS.test(String.fromCharCode(...bytes.subarray(0, 5)))) throw new Trouble("file_no_text");
  for (const encoding of encodingsOf(bytes)) {
    const text = attempt(encoding, bytes);
    if (text === null || ILLEGIBLE.test(text)) continue;
    if (!text.trim()) throw new Trouble("file_empty");
    return text;
  }
  throw new Trouble("file_no_text");
}

/** A byte order mark decides. Zeros are half of a Latin letter or a break in UTF-16, so most are on one side. */
function encodingsOf(bytes) {
  const marked = BYTE_ORDER_MARKS.find(([, mark]) => mark.every((byte, index) => bytes[index] === byte));
  if (marked) return [marked[0]];
  const zeros = [0, 0];
  bytes.forEach((byte, index) => {
    if (!byte) zeros[index % 2] += 1;
  });
  if (!zeros[0] && !zeros[1]) return ["utf-8", "gb18030"];
  return zeros[1] > zeros[0] ? ["utf-16le", "utf-16be"] : ["utf-16be", "utf-16le"];
}

function attempt(encoding, bytes) {
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}
