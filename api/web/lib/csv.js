// CSV both ways: RFC 4180 in and out, and no cell that a spreadsheet would run as a formula.

const FORMULA = /^[=+\-@\t\r]/;

/**
 * Rows of cells; an empty row has none. The separator is the one of comma, semicolon and tab that the first line has most of.
 */
export function parseCsv(text) {
  const firstLine = text.slice(0, text.search(/[\r\n]|$/));
  const separator = [",", ";", "\t"].reduce((best, next) =>
    firstLine.split(next).length > firstLine.split(best).length ? next : best,
  );
  const cell = new RegExp(`("(?:[^"]|"")*"|[^${separator}\r\n]*)(${separator}|\r\n|\r|\n|$)`, "g");
  const rows = [[]];
  for (const [whole, raw, end] of text.matchAll(cell)) {
    if (!whole) break;
    rows.at(-1).push(raw.startsWith('"') ? raw.slice(1, -1).replaceAll('""', '"') : raw);
    if (end && end !== separator) rows.push([]);
  }
  const told = rows.map((row) => (row.some((value) => value.trim()) ? row : []));
  return told.slice(0, told.findLastIndex((row) => row.length) + 1);
}

/** With a byte order mark, without which Excel takes Chinese for something else. */
export const writeCsv = (rows) => "\ufeff" + rows.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";

function quoted(value) {
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
