// The sentence explorer: a sentence, an attention type, a head for each model, and who attends to whom.

// What a byte q of the weights stands for; see quantised() in data.py.
const weightOf = (q) => (q / 255) ** 2;

// A token for reading: sentencepiece's mark of a word's beginning is drawn by the style sheet, and not spoken.
const spoken = (token) => token.replace(/^▁(?=.)/, "");
const tokenNode = (token) => html("span", { class: /^▁./.test(token) ? "piece first" : "piece" }, spoken(token));

const sidesOf = (sentence, type) => ({
  queries: type === "encoder_self" ? sentence.source : sentence.target_input,
  keys: type === "decoder_self" ? sentence.target_input : sentence.source,
});

// All weights of a sentence: by attention type {shape: [L, H, T, S], q: bytes}. Unpacked when first asked for.
async function unpack(maps, index) {
  const sentence = maps.sentences[index];
  if (!sentence.unpacked) {
    const packed = Uint8Array.from(atob(sentence.weights), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    let offset = 0;
    sentence.unpacked = {};
    for (const [type, [layers, heads]] of Object.entries(maps.shape)) {
      const { queries, keys } = sidesOf(sentence, type);
      const shape = [layers, heads, queries.length, keys.length];
      const size = shape.reduce((product, length) => product * length, 1);
      sentence.unpacked[type] = { shape, q: bytes.subarray(offset, offset + size) };
      offset += size;
    }
  }
  return sentence.unpacked;
}

function headOf({ shape: [, heads, queries, keys], q }, layer, head) {
  const size = queries * keys;
  const start = (layer * heads + head) * size;
  return { queries, keys, q: q.subarray(start, start + size) };
}

// The weights of one head, with the rows' sum of 1 that bytes cannot quite hold; exact zeros stay so.
function sharesOf({ queries, keys, q }) {
  const shares = Float32Array.from(q, weightOf);
  for (const row of range(queries)) {
    const weights = shares.subarray(row * keys, (row + 1) * keys);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    if (sum) weights.forEach((weight, key) => { weights[key] = weight / sum; });
  }
  return shares;
}

// The colours of weights, as bytes, for canvases: mixed as .heat mixes them, from the style sheet's own, so that
// they follow light and dark.
function heatRamp() {
  const style = getComputedStyle(document.documentElement);
  const [low, middle, high] = ["low", "middle", "high"].map((name) => {
    const colour = parseInt(style.getPropertyValue(`--heat-${name}`).trim().slice(1), 16);
    return [colour >> 16, (colour >> 8) & 255, colour & 255];
  });
  return range(256).map((q) => {
    const up = 2 * weightOf(q);
    const [from, to, share] = up < 1 ? [low, middle, up] : [middle, high, up - 1];
    return [...from.map((channel, index) => channel + share * (to[index] - channel)), 255];
  });
}

function paint(canvas, { queries, keys, q }, ramp) {
  canvas.width = keys;
  canvas.height = queries;
  const image = new ImageData(keys, queries);
  q.forEach((weight, index) => { if (weight) image.data.set(ramp[weight], 4 * index); });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The heads of one model as small pictures, of which one is chosen.
function headPicker(model, type, choose) {
  const [layers, heads] = model.maps.shape[type];
  const statistics = (layer, head) => model.heads.find((row) => sameHead(row, { attention: type, layer, head }));
  const buttons = range(layers * heads).map((index) => {
    const [layer, head] = [Math.floor(index / heads), index % heads];
    const row = statistics(layer, head);
    const about = row ? `, α ${row.alpha.toFixed(2)}, density ${row.density.toFixed(2)}` : "";
    const label = `layer ${layer}, head ${head}${about}`;
    return html("button", {
      type: "button", role: "radio", class: "thumb", "aria-label": label, title: label,
      "aria-checked": "false", tabindex: -1,
      onclick: () => choose(layer, head),
      onkeydown: (event) => roving(buttons, heads, event, (to) => {
        choose(Math.floor(to / heads), to % heads);
        buttons[to].focus();
      }),
    }, html("canvas", { "aria-hidden": "true" }));
  });
  const grid = html("div", {
    class: "picker", role: "radiogroup", "aria-label": `Head of ${model.name}; arrow keys move`,
    style: `--heads: ${heads}`,
  }, range(layers).map((layer) => [
    html("span", { class: "row-label", "aria-hidden": "true" }, layer), buttons.slice(layer * heads, (layer + 1) * heads)]),
  html("span", { "aria-hidden": "true" }),
  range(heads).map((head) => html("span", { class: "column-label", "aria-hidden": "true" }, head)));
  return {
    root: html("div", { class: "picking" }, html("p", { class: "note" }, "Layer ↓, head →"), grid),
    mark(layer, head) {
      buttons.forEach((button, index) => {
        const on = index === layer * heads + head;
        button.setAttribute("aria-checked", String(on));
        button.tabIndex = on ? 0 : -1;
      });
    },
    paint(weights, ramp) {
      buttons.forEach((button, index) =>
        paint(button.firstChild, headOf(weights, Math.floor(index / heads), index % heads), ramp));
    },
  };
}

// Queries down, keys across; an exact zero is an empty cell.
function matrix(sentence, type, map, chosen, choose) {
  const { queries, keys } = sidesOf(sentence, type);
  const decoding = type !== "encoder_self";
  const weight = (row, key) => map[row * keys.length + key];
  const buttons = queries.map((token, row) => html("button", {
    type: "button", class: "token", tabindex: row === chosen ? 0 : -1, "aria-pressed": String(row === chosen),
    onclick: () => choose(row),
    onkeydown: (event) => roving(buttons, 1, event, (to) => { choose(to); buttons[to].focus(); }),
  }, tokenNode(token), decoding ? html("span", { class: "next" }, "→ ", tokenNode(sentence.target[row])) : null));
  const body = html("tbody", {}, queries.map((token, row) => html("tr", { class: row === chosen ? "chosen" : null },
    html("th", { scope: "row" }, buttons[row]),
    keys.map((key, index) => weight(row, index)
      ? html("td", { class: "heat", style: `--weight: ${weight(row, index).toFixed(4)}` },
        html("span", { class: "hidden" }, percent(weight(row, index))))
      : html("td")))));
  const tell = (event) => {
    const cell = event.target.closest("td");
    if (!cell) return hideTip();
    const [row, key] = [cell.parentNode.rowIndex - 1, cell.cellIndex - 1];
    const share = weight(row, key);
    showTip(event, `${spoken(queries[row])} → ${spoken(keys[key])}: ${share ? percent(share) : "exactly 0"}`);
  };
  const root = html("table", {
    class: "matrix", style: `--keys: ${keys.length}`, onpointermove: tell, onpointerleave: hideTip,
    onclick(event) {
      const cell = event.target.closest("td");
      if (cell) choose(cell.parentNode.rowIndex - 1);
    },
  }, html("caption", { class: "hidden" }, "Attention weights: a row for each query, a column for each key"),
  html("thead", {}, html("tr", {},
    html("th", { scope: "col", class: "corner" }, decoding ? "read → predicted" : "query"),
    keys.map((token) => html("th", { scope: "col" }, tokenNode(token))))), body);
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

// In words and bars, to whom the chosen query attends.
function readout(sentence, type, map, row) {
  const { queries, keys } = sidesOf(sentence, type);
  const possible = type === "decoder_self" ? row + 1 : keys.length;
  const attended = keys.map((token, key) => ({ token, share: map[row * keys.length + key] }))
    .filter((each) => each.share).sort((one, other) => other.share - one.share);
  const zeros = possible - attended.length;
  const rest = zeros === 0 ? "; no weight is exactly 0"
    : zeros === 1 ? "; the weight of the other is exactly 0" : `; the weights of the other ${zeros} are exactly 0`;
  return [
    html("p", {}, html("strong", {}, tokenNode(queries[row])), ` attends to ${attended.length} of ${possible} tokens${rest}.`),
    html("ol", { class: "bars" }, attended.slice(0, 8).map(({ token, share }) => html("li", {},
      html("span", { class: "key" }, tokenNode(token)),
      html("span", { class: "bar", style: `--share: ${share}` }),
      html("span", { class: "value" }, percent(share))))),
    ...(attended.length > 8 ? [html("p", { class: "note" }, `and ${attended.length - 8} with less each`)] : []),
  ];
}

// One model's side of the explorer. state.choose tells all sides of a query that was chosen in one of them.
function explorerPanel(model, index, state) {
  const body = html("div");
  const heading = html("h3", { id: `panel-${index}` }, model.name);
  const said = html("div", { class: "readout", role: "status" });
  const root = html("article", {
    class: `explorer-panel model-${model.index % 6}`, "aria-labelledby": `panel-${index}`,
  }, heading, body);
  const chosen = {};
  let turn = 0;
  let mark = () => {};

  // At first the sparsest head: it shows most.
  const start = (type) => model.heads.filter((row) => row.attention === type)
    .reduce((best, row) => (row.density < best.density ? row : best));

  async function draw() {
    const mine = ++turn;
    const type = state.type;
    const sentence = model.maps.sentences[state.sentence];
    mark = () => {};
    root.setAttribute("aria-busy", "true");
    if (!sentence || !(type in model.maps.shape)) {
      body.replaceChildren(html("p", { class: "note" },
        sentence ? "This model has no such attention." : "There are no maps of this sentence."));
      root.setAttribute("aria-busy", "false");
      return;
    }
    const weights = (await unpack(model.maps, state.sentence))[type];
    if (mine !== turn) return;
    const side = type === "encoder_self" ? "source" : "target";
    const query = () => Math.min(state.query[side], sidesOf(sentence, type).queries.length - 1);
    const title = html("p", { class: "head-title" });
    const place = html("div");
    const picker = headPicker(model, type, show);

    function show(layer, head) {
      chosen[type] = { attention: type, layer, head };
      picker.mark(layer, head);
      const map = sharesOf(headOf(weights, layer, head));
      const facts = model.heads.find((row) => sameHead(row, chosen[type]));
      title.replaceChildren();
      fill(title, {}, [html("strong", {}, headName(chosen[type])),
        facts ? ` · α ${facts.alpha.toFixed(3)} · mean density ${facts.density.toFixed(3)}` : null,
        (facts?.roles ?? []).map((role) => html("span", { class: "badge" }, role))]);
      const shown = matrix(sentence, type, map, query(), (row) => state.choose(side, row));
      mark = () => {
        shown.mark(query());
        said.replaceChildren(...readout(sentence, type, map, query()));
      };
      place.replaceChildren(shown.root);
      mark();
    }

    picker.paint(weights, state.ramp);
    const { layer, head } = chosen[type] ?? start(type);
    show(layer, head);
    root.setAttribute("aria-busy", "false");
    body.replaceChildren(picker.root, said, html("div", { class: "shown" }, title, place));
  }

  return {
    root,
    draw,
    mark: () => mark(),
    choose({ attention, layer, head }) { chosen[attention] = { attention, layer, head }; },
  };
}

function explorer(data) {
  const models = data.models.map((model, index) => Object.assign(model, { index })).filter((model) => model.maps);
  const types = data.types.filter((type) => models.some((model) => type.key in model.maps.shape));
  const longest = models.reduce((best, model) =>
    (model.maps.sentences.length > best.maps.sentences.length ? model : best)).maps.sentences;
  const state = {
    sentence: 0, type: types[0].key, query: { source: 1, target: 1 }, ramp: heatRamp(),
    choose(side, query) {
      state.query[side] = query;
      for (const each of sides) each.mark();
    },
  };
  const sides = models.map((model, index) => explorerPanel(model, index, state));
  const draw = () => Promise.all(sides.map((side) => side.draw()));
  const textOf = (sentence) => sentence.text ?? sentence.source.slice(0, -1).join("").replaceAll("▁", " ").trim();
  const text = html("p", { class: "sentence" });

  function goTo(index) {
    state.sentence = Math.max(0, Math.min(longest.length - 1, index));
    select.value = String(state.sentence);
    back.disabled = state.sentence === 0;
    onward.disabled = state.sentence === longest.length - 1;
    text.replaceChildren(textOf(longest[state.sentence]));
    return draw();
  }

  const select = html("select", { id: "sentence", onchange: () => goTo(Number(select.value)) },
    longest.map((sentence, index) => {
      const whole = textOf(sentence);
      return html("option", { value: index }, `${index}: ${whole.length > 60 ? `${whole.slice(0, 59)}…` : whole}`);
    }));
  const back = html("button", { type: "button", class: "step", "aria-label": "Previous sentence", onclick: () => goTo(state.sentence - 1) }, "‹");
  const onward = html("button", { type: "button", class: "step", "aria-label": "Next sentence", onclick: () => goTo(state.sentence + 1) }, "›");
  const radios = types.map((type) => html("label", {}, html("input", {
    type: "radio", name: "attention", value: type.key, checked: type.key === state.type,
    onchange: () => { state.type = type.key; draw(); },
  }), html("span", {}, type.title)));
  const root = html("div", { class: "explorer" },
    html("div", { class: "controls" },
      html("div", { class: "control" }, html("label", { for: "sentence" }, "Sentence"), html("div", { class: "joined" }, back, select, onward)),
      html("fieldset", { class: "control" }, html("legend", {}, "Attention"), html("div", { class: "joined" }, radios))),
    text,
    html("div", { class: "explorer-panels", style: `--models: ${sides.length}` }, sides.map((side) => side.root)),
    html("p", { class: "scale note" }, "weight just above 0", html("span", { class: "ramp", "aria-hidden": "true" },
      range(12).map((step) => html("i", { class: "heat", style: `--weight: ${(step / 11).toFixed(3)}` }))), "1; exactly 0 is empty"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    state.ramp = heatRamp();
    draw();
  });
  goTo(0);
  return {
    root,
    choose(model, row) {
      sides[models.indexOf(model)].choose(row);
      state.type = row.attention;
      for (const label of radios) label.firstChild.checked = label.firstChild.value === state.type;
      return draw();
    },
  };
}
