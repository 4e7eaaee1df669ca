// Axes and marks in SVG. Colours are set by classes, so the style sheet handles light and dark mode.

const SIZE = { width: 400, height: 260, left: 54, right: 12, top: 12, bottom: 42 };

function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((value) => value >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return range(last - first + 1).map((index) => Number(((first + index) * step).toPrecision(12)));
}

// A frame with axes. x and y: {low, high, label, ticks?}. Add marks to .plot, positioned by .sx and .sy.
function frame({ label, x, y }) {
  const { width, height, left, right, top, bottom } = SIZE;
  const sx = (value) => left + ((value - x.low) / (x.high - x.low)) * (width - left - right);
  const sy = (value) => height - bottom - ((value - y.low) / (y.high - y.low)) * (height - top - bottom);
  const plot = svg("g");
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "chart" },
    svg("g", { class: "axis", "aria-hidden": "true" },
      (y.ticks ?? ticks(y.low, y.high)).map((value) => [
        svg("line", { class: "grid", x1: left, x2: width - right, y1: sy(value), y2: sy(value) }),
        svg("text", { x: left - 7, y: sy(value) + 3.5, "text-anchor": "end" }, String(value)),
      ]),
      svg("line", { class: "base", x1: left, x2: width - right, y1: sy(y.low), y2: sy(y.low) }),
      (x.ticks ?? ticks(x.low, x.high)).map((value) =>
        svg("text", { x: sx(value), y: height - bottom + 16, "text-anchor": "middle" }, whole(value))),
      svg("text", { class: "label", x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x.label),
      svg("text", {
        class: "label", x: 0, y: 0, "text-anchor": "middle",
        transform: `translate(11 ${(top + height - bottom) / 2}) rotate(-90)`,
      }, y.label)),
    plot);
  return { root, plot, sx, sy };
}

const path = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// The outline of a histogram with equal bins on [0, 1], closed at the axis.
function outline(shares, sx, sy) {
  const points = [[sx(0), sy(0)]];
  shares.forEach((share, index) => {
    points.push([sx(index / shares.length), sy(share)], [sx((index + 1) / shares.length), sy(share)]);
  });
  return path([...points, [sx(1), sy(0)]]);
}

function marker(index, x, y, text) {
  const shapes = [
    () => svg("circle", { cx: x, cy: y, r: 4 }),
    () => svg("rect", { x: x - 3.5, y: y - 3.5, width: 7, height: 7 }),
    () => svg("path", { d: `M${x} ${y - 5}l4.6 8h-9.2z` }),
    () => svg("path", { d: `M${x} ${y - 5}l5 5l-5 5l-5 -5z` }),
  ];
  return fill(shapes[index % shapes.length](), { class: `marker model-${index % 6}` }, [svg("title", {}, text)]);
}

// A figure for each attention type, side by side.
function panels(types, draw) {
  return html("div", { class: "panels" }, types.map((type) =>
    html("figure", { class: "panel" }, html("figcaption", {}, type.title), draw(type))));
}

// Panels with their legend, if any, and buttons that save them.
const figure = (name, all, key) => [all, key, savers(name, { draw: () => composed(all, key) })];

function legend(names, mark) {
  return html("ul", { class: "legend" }, names.map((name, index) =>
    html("li", {},
      svg("svg", { viewBox: "0 0 28 12", "aria-hidden": "true" }, mark(index, `model-${index % 6}`)), name)));
}

const lineMark = (index, name) => svg("line", { class: `line ${name}`, x1: 0, x2: 28, y1: 6, y2: 6 });
const markerMark = (index, name) => [lineMark(index, name), marker(index, 14, 6, "")];
const barMark = (index, name) => svg("rect", { class: `bar ${name}`, x: 4, y: 1, width: 20, height: 10 });
