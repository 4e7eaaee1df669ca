// The map of one head, and what the chosen query attends to.

// The index of the separator of source and machine translation in a post-editor's input; -1 in other sentences.
const separatorOf = (tokens) => tokens.findIndex((token) => token === "▁[SEP]" || token === "[SEP]");

const cellOf = (share) => (share
  ? html("td", { class: "heat", style: `--weight: ${share.toFixed(4)}` }, html("span", { class: "hidden" }, percent(share)))
  : html("td"));

// Rows are queries, columns are keys; exact zeros are empty cells.
function matrix(sentence, type, map, chosen, choose) {
  const { queries, keys } = sidesOf(sentence, type);
  const decoding = type !== "encoder_self";
  const weight = (row, key) => map[row * keys.length + key];
  const read = readOf(sentence);
  const buttons = queries.map((token, row) => html("button", {
    type: "button", class: "token", tabindex: row === chosen ? 0 : -1, "aria-pressed": String(row === chosen),
    onclick: () => choose(row),
    onkeydown: (event) => roving(buttons, 1, event, (to) => { choose(to); buttons[to].focus(); }),
  }, tokenNode(decoding ? read : queries, row),
    decoding ? html("span", { class: "next" }, "→ ", tokenNode(read, row + 1)) : null));
  const [cutRow, cutKey] = [separatorOf(queries), separatorOf(keys)];
  const rowClass = (row) => (row === chosen ? "chosen" : row === cutRow ? "parting" : null);
  const body = html("tbody", {}, queries.map((token, row) => html("tr", { class: rowClass(row) },
    html("th", { scope: "row" }, buttons[row]),
    keys.map((key, index) => cellOf(weight(row, index))))));
  const tell = (event) => {
    const cell = event.target.closest("td");
    if (!cell) return hideTip();
    const [row, key] = [cell.parentNode.rowIndex - 1, cell.cellIndex - 1];
    const share = weight(row, key);
    const said = decoding ? `to write ${tokenText(read, row + 1)}, ${tokenText(read, row)}` : tokenText(queries, row);
    return showTip(event, `${said} attends to ${tokenText(keys, key)}: ${share ? percent(share) : "exactly 0"}`);
  };
  const root = html("table", {
    class: decoding ? "matrix decoding" : "matrix", style: `--keys: ${keys.length}`, onpointermove: tell, onpointerleave: hideTip,
    onclick(event) {
      const cell = event.target.closest("td");
      if (!cell) return;
      choose(cell.parentNode.rowIndex - 1);
      tell(event);
    },
  }, html("caption", { class: "hidden" }, "Attention weights: a row for each query, a column for each key"),
  cutKey < 0 ? null : html("colgroup", {}, html("col", { span: cutKey + 1 }), html("col", { class: "parting" })),
  html("thead", {}, html("tr", {},
    html("th", { scope: "col", class: "corner" },
      html("span", {}, `keys: ${axisName(AXES[type].keys)} →`),
      html("span", {}, `queries: ${axisName(AXES[type].queries)} ↓`),
      decoding ? html("span", {}, "(read → next)") : null),
    keys.map((token, key) => html("th", { scope: "col" }, tokenNode(keys, key))))), body);
  return {
    root: html("div", { class: "scroll" }, root),
    mark(row) {
      buttons.forEach((button, other) => {
        button.setAttribute("aria-pressed", String(other === row));
        button.tabIndex = other === row ? 0 : -1;
        button.closest("tr").classList.toggle("chosen", other === row);
      });
    },
  };
}

// The tokens that the chosen query attends to, as text and bars.
function readout(sentence, type, map, row) {
  const { queries, keys } = sidesOf(sentence, type);
  const possible = sentence.possible(type, row);
  const attended = keys.map((token, key) => ({ key, share: map[row * keys.length + key] }))
    .filter(({ share }) => share).sort((a, b) => b.share - a.share);
  const zeros = possible - attended.length;
  const rest = zeros === 0 ? "; no weight is exactly 0"
    : zeros === 1 ? "; the other weight is exactly 0" : `; the other ${zeros} weights are exactly 0`;
  const read = readOf(sentence);
  const reading = type === "encoder_self" ? null
    : ["To write ", html("strong", {}, tokenNode(read, row + 1)), ", "];
  return [
    html("p", {}, reading, html("strong", {}, tokenNode(reading ? read : queries, row)),
      ` attends to ${attended.length} of ${possible} ${sentence.words ? "words" : "tokens"}${rest}.`),
    html("ol", { class: "bars" }, attended.slice(0, 8).map(({ key, share }) => html("li", {},
      html("span", { class: "key" }, tokenNode(keys, key)),
      html("span", { class: "bar", style: `--share: ${share}` }),
      html("span", { class: "value" }, percent(share))))),
    ...(attended.length > 8 ? [html("p", { class: "note" }, `and ${attended.length - 8} more with smaller weights`)] : []),
  ];
}


// The names of rows and columns as text.
function labelsOf(sentence, type) {
  const { queries, keys } = sidesOf(sentence, type);
  const read = readOf(sentence);
  return {
    rows: queries.map((_, row) => (type === "encoder_self" ? tokenText(queries, row)
      : `${tokenText(read, row)} → ${tokenText(read, row + 1)}`)),
    columns: keys.map((_, key) => tokenText(keys, key)),
  };
}

// A map as rows of values.
function mapRows(sentence, type, map) {
  const { rows, columns } = labelsOf(sentence, type);
  return [["query", ...columns], ...rows.map((row, at) =>
    [row, ...[...map.subarray(at * columns.length, (at + 1) * columns.length)].map((value) => Number(value.toPrecision(4)))])];
}

// A map as a figure of its own.
function mapFigure(sentence, type, map, title, ramp) {
  const { rows, columns } = labelsOf(sentence, type);
  const widest = (texts) => 7 * Math.max(...texts.map((text) => text.length));
  const [cell, left, top] = [20, 16 + widest(rows), 44 + widest(columns)];
  const rgb = (share) => ramp[Math.max(1, Math.round(255 * Math.sqrt(share)))].slice(0, 3).map(Math.round);
  const colour = (share) => (share ? `rgb(${rgb(share).join()})` : "none");
  const style = getComputedStyle(document.documentElement);
  const width = Math.max(left + cell * columns.length + 16, 16 + 7 * title.length);
  return paper(width, top + cell * rows.length + 16,
    svg("text", { x: 8, y: 18, "font-weight": 600 }, title),
    columns.map((text, key) => svg("text", { transform: `translate(${left + cell * key + 14} ${top - 6}) rotate(-90)` }, text)),
    rows.map((text, row) => [
      svg("text", { x: left - 8, y: top + cell * row + 14, "text-anchor": "end" }, text),
      columns.map((_, key) => svg("rect", {
        x: left + cell * key, y: top + cell * row, width: cell, height: cell,
        fill: colour(map[row * columns.length + key]), stroke: style.getPropertyValue("--line").trim(),
      })),
    ]));
}
