// The sentence explorer: the tokens that a head attends to, by sentence, attention type, model and head.

// The weight that a byte q represents; see quantised() in page.py.
const weightOf = (q) => (q / 255) ** 2;

// A token without sentencepiece's mark of a word start. The style sheet marks inner pieces, by a hyphen.
const spoken = (token) => token.replace(/^▁(?=.)/, "");

// Repeated tokens of a sentence are shown with their position as a subscript.
const repeated = (tokens, index) => tokens[index] !== "</s>"
  && tokens.indexOf(tokens[index]) !== tokens.lastIndexOf(tokens[index]);
// Chinese, Japanese and Korean text is upright in vertical column labels.
const WIDE = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303f\uff00-\uffef]/u;
// Whether a piece continues a word of letters; false if the sentence has no ▁, which marks word starts.
const continues = (tokens, index) => /^[\p{L}\p{N}]/u.test(tokens[index]) && !WIDE.test(tokens[index])
  && tokens.some((token) => /^▁./.test(token));
const tokenNode = (tokens, index) => html("span", {
  class: ["piece", continues(tokens, index) ? "inner" : "", WIDE.test(tokens[index]) ? "wide" : ""].join(" ").trim(),
}, spoken(tokens[index]), repeated(tokens, index) ? html("sub", {}, index) : null);
const tokenText = (tokens, index) => spoken(tokens[index]) + (repeated(tokens, index) ? ` (${index})` : "");

const sidesOf = (sentence, type) => ({
  queries: type === "encoder_self" ? sentence.source : sentence.target_input,
  keys: type === "decoder_self" ? sentence.target_input : sentence.source,
});

// The tokens that the decoder reads and the last token that it writes: row i reads token i and writes i + 1.
const readOf = (sentence) => [...sentence.target_input, ...sentence.target.slice(-1)];

// What the rows and columns of a map represent.
const AXES = {
  encoder_self: { queries: "source", keys: "source" },
  decoder_self: { queries: "reference", keys: "reference" },
  decoder_context: { queries: "reference", keys: "source" },
};

// Whether the target side is the models' own translation, not the reference of a split.
const translated = () => data.models.some((model) => model.about.target === "translation");
const axisName = (axis) => (axis === "reference" && translated() ? "translation" : axis);

// Join pieces to a sentence.
function joined(tokens) {
  return tokens.filter((token) => token !== "</s>").join("").replaceAll("▁", " ").trim();
}

// All weights of a sentence: by attention type {shape: [L, H, T, S], q: bytes}. Unpacked at the first request.
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

// The mean of all heads of all layers, quantised like them.
function meanOf({ shape: [layers, heads, queries, keys], q }) {
  const size = queries * keys;
  const sum = new Float32Array(size);
  for (const index of range(layers * heads)) {
    sharesOf(headOf({ shape: [layers, heads, queries, keys], q }, Math.floor(index / heads), index % heads))
      .forEach((share, at) => { sum[at] += share; });
  }
  const bytes = Uint8Array.from(sum, (share) =>
    (share ? Math.max(1, Math.round(255 * Math.sqrt(Math.min(1, share / (layers * heads))))) : 0));
  return { queries, keys, q: bytes };
}

const mapOf = (weights, head) => (head.mean ? meanOf(weights) : headOf(weights, head.layer, head.head));

// The weights of one head, with rows normalised to 1 again after quantisation; exact zeros are kept.
function sharesOf({ queries, keys, q }) {
  const shares = Float32Array.from(q, weightOf);
  for (const row of range(queries)) {
    const weights = shares.subarray(row * keys, (row + 1) * keys);
    const sum = weights.reduce((total, weight) => total + weight, 0);
    if (sum) weights.forEach((weight, key) => { weights[key] = weight / sum; });
  }
  return shares;
}

// The colours of weights as bytes, for canvases: mixed like .heat, from the colours of the style sheet, so that
// they follow light and dark mode.
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

// The heads of one model and their mean as a radio group of thumbnails.
function headPicker(model, type, choose) {
  const [layers, heads] = model.maps.shape[type];
  const statistics = (layer, head) => model.heads.find((row) => sameHead(row, { attention: type, layer, head }));
  const places = [
    ...range(layers * heads).map((index) => ({ layer: Math.floor(index / heads), head: index % heads })), { mean: true },
  ];
  const buttons = places.map((place) => {
    const row = place.mean ? null : statistics(place.layer, place.head);
    const about = row ? `, α ${row.alpha.toFixed(2)}, density ${row.density.toFixed(2)}` : "";
    const label = headName(place) + about;
    return html("button", {
      type: "button", role: "radio", class: "thumb", "aria-label": label, title: label,
      "aria-checked": "false", tabindex: -1,
      onclick: () => choose(place),
      onkeydown: (event) => roving(buttons, heads, event, (to) => {
        choose(places[to]);
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
  range(heads).map((head) => html("span", { class: "column-label", "aria-hidden": "true" }, head)),
  html("span", { "aria-hidden": "true" }), buttons[layers * heads],
  html("span", { class: "mean-label", "aria-hidden": "true" }, MEAN));
  return {
    root: html("div", { class: "picking" }, html("p", { class: "note" }, "Rows are layers, columns are heads"), grid),
    mark(chosen) {
      buttons.forEach((button, index) => {
        const on = samePlace(places[index], chosen);
        button.setAttribute("aria-checked", String(on));
        button.tabIndex = on ? 0 : -1;
      });
    },
    paint(weights, ramp) {
      buttons.forEach((button, index) => paint(button.firstChild, mapOf(weights, places[index]), ramp));
    },
  };
}

const samePlace = (a, b) => (a.mean || b.mean ? a.mean === b.mean
  : a.layer === b.layer && a.head === b.head);
const exists = ([layers, heads], place) => place.mean || (place.layer < layers && place.head < heads);

// One model's panel of the explorer. state.chooseQuery and state.chooseHead pass a choice on to the other panels.
function explorerPanel(model, index, state) {
  const body = html("div");
  const heading = html("h3", { id: `panel-${index}` }, model.name);
  const said = html("div", { class: "readout", role: "status" });
  const root = html("article", {
    class: `explorer-panel model-${model.index % 6}`, "aria-labelledby": `panel-${index}`,
  }, heading, body);
  const chosen = {}; // by attention type
  let turn = 0;
  let mark = () => {};
  let show = () => {};

  async function draw() {
    const mine = ++turn;
    const type = state.type;
    const sentence = model.maps.sentences[state.sentence];
    mark = show = () => {};
    root.setAttribute("aria-busy", "true");
    if (!sentence || !(type in model.maps.shape)) {
      body.replaceChildren(html("p", { class: "note" },
        sentence ? "This model has no attention of this type." : "This model has no maps of this sentence."));
      root.setAttribute("aria-busy", "false");
      return;
    }
    const unpacked = await unpack(model.maps, state.sentence);
    if (mine !== turn) return;
    const weights = unpacked[type];
    const view = viewOf(sentence, state.words);
    const reading = AXES[type].queries;
    const query = () => view.rowOf(type, Math.min(state.query[reading], sidesOf(sentence, type).queries.length - 1));
    const title = html("p", { class: "head-title" });
    const place = html("div");
    const picker = headPicker(model, type, (head) => state.chooseHead(side, head));

    show = () => {
      const head = chosen[type];
      picker.mark(head);
      const map = view.merge(type, sharesOf(mapOf(weights, head)));
      const facts = head.mean ? null : model.heads.find((row) => sameHead(row, { attention: type, ...head }));
      title.replaceChildren();
      fill(title, {}, [html("strong", {}, headName(head)),
        facts ? ` · α ${facts.alpha.toFixed(3)} · mean density ${facts.density.toFixed(3)}` : null,
        (facts?.roles ?? []).map((role) => [" ", html("span", { class: "badge" }, role)])]);
      const shown = matrix(view, type, map, query(),
        (row) => state.chooseQuery(reading, view.groups[type].queries[row][0]));
      mark = () => {
        shown.mark(query());
        said.replaceChildren(...readout(view, type, map, query()));
      };
      const name = `${model.name}, ${type.replace("_", " ")}, ${headName(head)}, sentence ${state.sentence}`;
      place.replaceChildren(shown.root, savers(name, {
        draw: () => mapFigure(view, type, map, name, state.ramp), table: () => mapRows(view, type, map),
      }));
      mark();
    };

    picker.paint(weights, state.ramp);
    chosen[type] ??= state.start(type);
    show();
    root.setAttribute("aria-busy", "false");
    body.replaceChildren(html("div", { class: "choosing" }, picker.root, said), html("div", { class: "shown" }, title, place));
  }

  const side = {
    root,
    draw,
    mark: () => mark(),
    show: () => show(),
    chosen: (type) => chosen[type],
    // Choose a head; returns whether the model has it.
    choose(type, head) {
      if (!(type in model.maps.shape) || !exists(model.maps.shape[type], head)) return false;
      chosen[type] = head;
      return true;
    },
  };
  return side;
}

function explorer(data) {
  const models = data.models.map((model, index) => Object.assign(model, { index })).filter((model) => model.maps);
  const types = data.types.filter((type) => models.some((model) => type.key in model.maps.shape));
  const longest = models.reduce((best, model) =>
    (model.maps.sentences.length > best.maps.sentences.length ? model : best)).maps.sentences;
  const state = {
    sentence: 0,
    type: (types.find((type) => type.key === "decoder_context") ?? types[0]).key,
    query: { source: 1, reference: 1 },
    ramp: heatRamp(),
    linked: true,
    words: false,
    chooseQuery(reading, query) {
      state.query[reading] = query;
      for (const panel of sides) panel.mark();
      remember();
    },
    chooseHead(side, head) {
      for (const panel of state.linked ? sides : [side]) {
        if (panel.choose(state.type, head)) panel.show();
      }
      setLinked(state.linked && same());
      remember();
    },
    // Start with the sparsest of the heads that all models have, which is the most telling.
    start(type) {
      const shapes = models.filter((model) => type in model.maps.shape).map((model) => model.maps.shape[type]);
      const rows = models.flatMap((model) => model.heads)
        .filter((row) => row.attention === type && shapes.every((shape) => exists(shape, row)));
      const sparsest = rows.reduce((best, row) => (row.density < best.density ? row : best));
      return { layer: sparsest.layer, head: sparsest.head };
    },
  };
  const sides = models.map((model, index) => explorerPanel(model, index, state));
  // Whether all models show the same head.
  const same = () => {
    const [first, ...others] = sides.map((side) => side.chosen(state.type)).filter(Boolean);
    return others.every((head) => samePlace(head, first));
  };
  const draw = () => Promise.all(sides.map((side) => side.draw())).then(() => setLinked(state.linked && same()));
  const textOf = (sentence) => sentence.text || joined(sentence.source);
  const source = html("dd", { class: "source", dir: "auto" });
  const reference = html("dd", { class: "reference", dir: "auto" });

  // The sentences that the search finds: by a part of either side, or by their number.
  function search() {
    const wanted = find.value.trim().toLowerCase();
    const has = (sentence) => [textOf(sentence), joined(sentence.target)]
      .some((text) => text.toLowerCase().includes(wanted));
    matches = range(longest.length).filter((index) => !wanted || String(index) === wanted || has(longest[index]));
    count.textContent = wanted ? `${matches.length} of ${longest.length} sentences` : "";
    list();
    if (matches.length && !matches.includes(state.sentence)) chosenByUser(matches[0]);
    else steps();
  }

  // The matching sentences, and the shown one, as options.
  function list() {
    select.replaceChildren(...[...new Set([...matches, state.sentence])].sort((a, b) => a - b).map((index) => {
      const whole = textOf(longest[index]);
      return html("option", { value: index }, `${index}: ${whole.length > 60 ? `${whole.slice(0, 59)}…` : whole}`);
    }));
    select.value = String(state.sentence);
  }

  const before = () => matches.findLast((index) => index < state.sentence);
  const after = () => matches.find((index) => index > state.sentence);
  function steps() {
    back.disabled = before() === undefined;
    onward.disabled = after() === undefined;
  }

  function goTo(index) {
    state.sentence = Math.max(0, Math.min(longest.length - 1, index));
    list();
    steps();
    source.replaceChildren(textOf(longest[state.sentence]));
    reference.replaceChildren(joined(longest[state.sentence].target));
    return draw();
  }

  function setType(type) {
    state.type = type;
    for (const label of radios) label.firstChild.checked = label.firstChild.value === type;
    note.hidden = type === "encoder_self";
  }

  const placeText = (head) => (head.mean ? "mean" : `${head.layer}.${head.head}`);

  // Store the choice in the page's URL, so that it can be shared or bookmarked.
  function remember() {
    const heads = sides.map((side) => side.chosen(state.type)).map((head) => (head ? placeText(head) : ""));
    const values = {
      sentence: state.sentence, attention: state.type, head: state.linked ? heads.find(Boolean) : heads.join(","),
      token: state.query[AXES[state.type].queries], ...(state.words && { words: 1 }),
    };
    history.replaceState(null, "", `#explorer?${new URLSearchParams(values)}`);
  }

  // Restore the choice from the page's URL; invalid values are ignored.
  function follow(values) {
    const number = (text) => (/^\d{1,6}$/.test(text ?? "") ? Number(text) : null);
    if (types.some((type) => type.key === values.get("attention"))) setType(values.get("attention"));
    const heads = (values.get("head") ?? "").split(",").map((text) => {
      const [layer, head] = text.split(".").map(number);
      return text === "mean" ? { mean: true } : layer !== null && Number.isInteger(head) ? { layer, head } : null;
    });
    setLinked(heads.length < 2);
    state.words = words.checked = values.has("words");
    sides.forEach((side, index) => {
      const head = heads[state.linked ? 0 : index];
      if (head) side.choose(state.type, head);
    });
    state.query[AXES[state.type].queries] = number(values.get("token")) ?? 1;
    return goTo(number(values.get("sentence")) ?? state.sentence);
  }

  function setLinked(linked) {
    state.linked = linked;
    link.checked = linked;
  }

  const chosenByUser = (index) => { goTo(index); remember(); };
  const link = html("input", {
    type: "checkbox", id: "linked", checked: true,
    onchange() {
      state.linked = link.checked;
      const head = sides.map((side) => side.chosen(state.type)).find(Boolean);
      if (state.linked && head) state.chooseHead(sides[0], head);
      else remember();
    },
  });
  const words = html("input", {
    type: "checkbox", id: "words",
    onchange() {
      state.words = words.checked;
      draw().then(remember);
    },
  });
  const find = html("input", { type: "search", id: "find", placeholder: "words or number", oninput: search });
  const count = html("span", { class: "note", role: "status" });
  let matches = range(longest.length);
  const note = html("p", { class: "note", hidden: state.type === "encoder_self" }, translated()
    ? "The decoder reads the translation: each row shows the token it reads → the token that follows."
    : "The decoder reads the reference translation (teacher forcing), not the model's own output: each row shows " +
      "the reference token it reads → the reference token that follows.");
  const select = html("select", { id: "sentence", onchange: () => chosenByUser(Number(select.value)) });
  const step = (label, to, text) => html("button", {
    type: "button", class: "step", "aria-label": label, onclick: () => chosenByUser(to()),
  }, text);
  const back = step("Previous sentence", before, "‹");
  const onward = step("Next sentence", after, "›");
  const radios = types.map((type) => html("label", {}, html("input", {
    type: "radio", name: "attention", value: type.key, checked: type.key === state.type,
    onchange: () => { setType(type.key); draw().then(remember); },
  }), html("span", {}, type.title)));
  const root = html("div", { class: "explorer" },
    html("dl", { class: "sentence" }, html("dt", {}, "source"), source,
      html("dt", {}, axisName("reference")), reference),
    html("div", { class: "controls" },
      ...(longest.length > 1 ? [
        html("div", { class: "control" }, html("label", { for: "find" }, "Find a sentence ", count), find),
        html("div", { class: "control" }, html("label", { for: "sentence" }, "Sentence"),
          html("div", { class: "joined" }, back, select, onward)),
      ] : []),
      html("fieldset", { class: "control" }, html("legend", {}, "Attention"), html("div", { class: "joined" }, radios)),
      sides.length > 1 ? html("label", { class: "control linking", for: "linked" }, link, " same head in all models") : null,
      html("label", { class: "control linking", for: "words" }, words, " words, not pieces")),
    note,
    html("div", { class: "explorer-panels", style: `--models: ${sides.length}` }, sides.map((side) => side.root)),
    html("p", { class: "scale note" }, "weight just above 0", html("span", { class: "ramp", "aria-hidden": "true" },
      range(12).map((index) => html("i", { class: "heat", style: `--weight: ${(index / 11).toFixed(3)}` }))),
      "1; cells of exactly 0 are empty"),
    html("p", { class: "note" }, "Subscripts give the positions of tokens that occur more than once in the sentence; "
      + "a hyphen starts a piece that continues a word."));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    state.ramp = heatRamp();
    draw();
  });
  goTo(0);
  return {
    root,
    follow,
    choose(model, { attention, layer, head }) {
      setType(attention);
      for (const side of state.linked ? sides : [sides[models.indexOf(model)]]) side.choose(attention, { layer, head });
      return draw().then(remember);
    },
  };
}
