// Creating elements. Text only becomes text nodes, so it cannot be interpreted as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return node;
}

const html = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const range = (count) => Array.from({ length: count }, (_, index) => index);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const sameHead = (a, b) =>
  a.attention === b.attention && a.layer === b.layer && a.head === b.head;
const MEAN = "mean of all heads";
const headName = (head) => (head.mean ? MEAN : `layer ${head.layer}, head ${head.head}`);
const SHORT_TYPES = { encoder_self: "encoder", decoder_self: "decoder", decoder_context: "context" };
const shortName = (head) => `${SHORT_TYPES[head.attention]} L${head.layer} H${head.head}`;
const whole = (number) => String(number).replace(/^\d{4,}$/, (digits) => digits.replace(/\B(?=(\d{3})+$)/g, ","));

function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return "<0.01 %";
  return `${value.toFixed(value >= 9.95 ? 0 : value >= 0.995 ? 1 : 2)} %`;
}

// Whether the pointer is a finger, which cannot point at something without touching it.
const TOUCH = matchMedia("(hover: none)").matches;

// The page's tooltip, next to the pointer but inside the window.
function showTip(event, text) {
  const tip = document.getElementById("tip");
  tip.textContent = text;
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
}

function hideTip() {
  document.getElementById("tip").hidden = true;
}

// Arrow keys move the focus among elements of which only one is a tab stop, arranged in rows of `columns`. The
// last row may be shorter; moving down from any element of the row above reaches it.
function roving(nodes, columns, event, choose) {
  const moves = {
    ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns,
    Home: -nodes.length, End: nodes.length,
  };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const from = nodes.indexOf(event.currentTarget);
  const shorter = event.key === "ArrowDown" && nodes.length % columns && from < nodes.length - (nodes.length % columns);
  const to = shorter ? Math.min(from + columns, nodes.length - 1) : from + moves[event.key];
  const inside = ["Home", "End"].includes(event.key) || (to >= 0 && to < nodes.length);
  if (inside) choose(Math.max(0, Math.min(nodes.length - 1, to)));
}
