// Files -> lines of text. Chinese files are often not UTF-8 but GB 18030, and a CSV file has columns to choose from.

import { parseCsv } from "../lib/csv.js";

/** -> {columns, header}: each column's lines; a text file has one column. `header` is null or the columns' names. */
export async function readFile(file, isMasked) {
  const text = decoded(await file.arrayBuffer());
  if (!/\.(csv|tsv)$/i.test(file.name)) return { columns: [linesOf(text)], header: null };
  const rows = parseCsv(text);
  const width = Math.max(0, ...rows.map((row) => row.length));
  const columns = Array.from({ length: width }, (_, index) => rows.map((row) => oneLine(row[index] ?? "")));
  const header = rows.length > 1 && !rows[0].some(isMasked) ? rows[0] : null;
  return { columns: header ? columns.map((column) => column.slice(1)) : columns, header };
}

/** The column with most masked lines: likely the one that is meant. */
export function likeliest(columns, isMasked) {
  const masked = columns.map((column) => column.filter(isMasked).length);
  return masked.indexOf(Math.max(...masked));
}

export const linesOf = (text) =>
  text
    .split(/\r\n|\r|\n/)
    .map((line) => line.trim())
    .filter(Boolean);

const oneLine = (cell) => cell.replace(/\s*[\r\n]+\s*/g, " ").trim();

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("gb18030").decode(bytes);
  }
}
