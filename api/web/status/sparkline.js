// A minute as a small line, drawn with SVG. A null is a second of which nothing is known: the line goes on behind it.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 40;

/** `length` values fill the width; fewer stand at its right end. The line begins at zero and its highest value is at the top. */
export function sparkline(values, length, label) {
  const most = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const at = (value, index) => [
    (WIDTH * (length - values.length + index)) / Math.max(1, length - 1),
    HEIGHT * (1 - (0.92 * value) / most),
  ];
  const points = values.flatMap((value, index) => (value === null ? [] : [at(value, index)]));
  const drawing = draw("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    class: "sparkline",
    role: "img",
    "aria-label": label,
  });
  drawing.append(draw("line", { x1: 0, y1: HEIGHT, x2: WIDTH, y2: HEIGHT }));
  if (points.length > 1) {
    const line = points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join("L");
    drawing.append(
      draw("path", { class: "area", d: `M${points[0][0]},${HEIGHT}L${line}L${points.at(-1)[0]},${HEIGHT}Z` }),
    );
    drawing.append(draw("path", { d: `M${line}` }));
  }
  return drawing;
}

function draw(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}
