// Figures and tables as files, made in the browser.

const fileName = (name) => name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");

function download(name, blob) {
  const url = URL.createObjectURL(blob);
  html("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// Rows of values as text; separator is a comma or a tab.
function separated(rows, separator) {
  const cell = (value) => {
    const text = String(value ?? "");
    if (separator === "\t") return text.replace(/[\t\r\n]+/g, " ");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(separator)}\n`).join("");
}

const PAINTED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity",
  "font-family", "font-size", "font-weight", "visibility"];

// A copy of an SVG element with the colours and fonts that the style sheet gives it now.
function painted(node) {
  const copy = node.cloneNode(true);
  const copies = [copy, ...copy.querySelectorAll("*")];
  [node, ...node.querySelectorAll("*")].forEach((original, index) => {
    const style = getComputedStyle(original);
    for (const name of PAINTED) copies[index].setAttribute(name, style.getPropertyValue(name));
    copies[index].removeAttribute("class");
  });
  return copy;
}

const paper = (width, height, ...children) => {
  const style = getComputedStyle(document.body);
  return svg("svg", {
    xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}`,
    "font-family": style.fontFamily, "font-size": 12, fill: style.color,
  }, svg("rect", { width, height, fill: style.backgroundColor }), ...children);
};

// Panels side by side, with their captions and legend, as one picture.
function composed(panels, legend) {
  const [gap, head] = [24, 26];
  const figures = [...panels.querySelectorAll("figure")];
  const width = figures.length * (SIZE.width + gap) + gap;
  let [x, y] = [gap, head + SIZE.height + 12];
  const entries = [...(legend?.children ?? [])].map((entry) => {
    const room = 48 + 7 * entry.textContent.length;
    if (x > gap && x + room > width) [x, y] = [gap, y + 20];
    const mark = fill(painted(entry.querySelector("svg")), { x, y, width: 28, height: 12 }, []);
    const label = svg("text", { x: x + 36, y: y + 10 }, entry.textContent);
    x += room;
    return [mark, label];
  });
  return paper(width, y + 24, figures.map((figure, index) => {
    const place = { x: gap + index * (SIZE.width + gap), y: head, width: SIZE.width, height: SIZE.height };
    const chart = fill(painted(figure.querySelector("svg")), place, []);
    const caption = figure.querySelector("figcaption").textContent;
    return [svg("text", { x: place.x, y: 17, "font-weight": 600 }, caption), chart];
  }), entries);
}

// An SVG element as an SVG or, at twice its size, as a PNG.
async function picture(root, kind) {
  const text = new XMLSerializer().serializeToString(root);
  if (kind === "svg") return new Blob([text], { type: "image/svg+xml" });
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = html("canvas", { width: 2 * root.getAttribute("width"), height: 2 * root.getAttribute("height") });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => { canvas.toBlob(resolve); });
}

// Buttons that save a figure (draw() gives an SVG element) and its values (table() gives rows).
function savers(name, { draw, table: rows }) {
  const contents = {
    ...(draw && { SVG: () => picture(draw(), "svg"), PNG: () => picture(draw(), "png") }),
    ...(rows && {
      CSV: () => new Blob([separated(rows(), ",")], { type: "text/csv" }),
      TSV: () => new Blob([separated(rows(), "\t")], { type: "text/tab-separated-values" }),
    }),
  };
  return html("p", { class: "save" }, "Save: ", Object.entries(contents).map(([kind, content]) => html("button", {
    type: "button", class: "link", "aria-label": `Save ${name} as ${kind}`,
    onclick: async () => download(`${fileName(name)}.${kind.toLowerCase()}`, await content()),
  }, kind)));
}
