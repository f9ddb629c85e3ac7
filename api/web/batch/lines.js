// Files -> lines of text, each with the number that it has in the file. lib/decoding.js knows the encodings.

import { parseCsv } from "../lib/csv.js";
import { decoded } from "../lib/decoding.js";
import { Trouble } from "../lib/service.js";

/**
 * -> {columns, header, first}: each column's text, a cell a line; a text file has one column. `header` is null or the
 * columns' names; `first` is the number that the first line has in the file. Throws a Trouble if it is no text.
 */
export async function readFile(file, isMasked) {
  const text = decoded(await file.arrayBuffer());
  if (!/\.(csv|tsv)$/i.test(file.name)) return { columns: [text], header: null, first: 1 };
  const rows = parseCsv(text);
  if (!rows.length) throw new Trouble("file_empty");
  const top = rows.findIndex((row) => row.length);
  const header = rows.length > top + 1 && !rows[top].some(isMasked) ? rows[top] : null;
  const below = header ? rows.slice(top + 1) : rows;
  const width = Math.max(...rows.map((row) => row.length));
  const columns = Array.from({ length: width }, (_, index) => below.map((row) => oneLine(row[index] ?? "")).join("\n"));
  return { columns, header, first: header ? top + 2 : 1 };
}

/** The column with most masked lines: likely the one that is meant. */
export function likeliest(columns, isMasked) {
  const masked = columns.map((column) => linesOf(column).filter(({ text }) => isMasked(text)).length);
  return masked.indexOf(Math.max(...masked));
}

/** -> [{line, text}, ...]: an empty line is left out, but it counts, so that a line has the number that its author sees. */
export const linesOf = (text, first = 1) =>
  text
    .split(/\r\n|\r|\n/)
    .map((line, index) => ({ line: first + index, text: line.trim() }))
    .filter(({ text: words }) => words);

const oneLine = (cell) => cell.replace(/\s*[\r\n]+\s*/g, " ").trim();
