// The figures of the paper: functions from the data of all models to an element.

const typesOf = (data) => data.types.filter((type) =>
  data.models.some((model) => model.heads.some((row) => row.attention === type.key)));

const LAYER_SHADES = 12;

function layerClass(layer, layers) {
  return `layer-${layers > 1 ? Math.round((layer * (LAYER_SHADES - 1)) / (layers - 1)) : 0}`;
}

// The same scale for all models, so that they can be compared.
function alphaScale(data) {
  const all = data.models.flatMap((model) => (model.trajectories?.heads ?? []).flatMap((row) => row.alpha));
  const [low, high] = all.reduce(([least, most], alpha) => [Math.min(least, alpha), Math.max(most, alpha)],
    [Infinity, -Infinity]);
  const margin = Math.max(0.02, 0.04 * (high - low));
  return { low: Math.max(1, low - margin), high: high + margin, label: "α" };
}

function trajectoryChart(model, type, scale, layers, choose) {
  const { updates, heads } = model.trajectories;
  const rows = heads.filter((row) => row.attention === type.key);
  const chart = frame({
    x: { low: updates[0], high: updates[updates.length - 1], label: "updates" },
    y: scale,
  });
  const after = updatesAfter(model);
  const lines = rows.map((row) => svg("path", {
    class: `line ${layerClass(row.layer, layers)}`,
    d: path(row.alpha.map((alpha, index) => [chart.sx(updates[index]), chart.sy(alpha)])),
  }));
  const dot = svg("circle", { class: "dot", r: 4, visibility: "hidden" });
  chart.plot.append(...lines, after === null ? "" : beyond(chart, after), dot);
  const said = html("p", { class: "said", role: "status" });
  const describe = (row, at) =>
    `${headName(row)}: α ${row.alpha[at].toFixed(3)} at update ${whole(updates[at])}` +
    (after !== null && updates[at] > after ? ", after the checkpoint" : "");
  let shown = null;
  let tapped = null;

  function show(index, at) {
    shown = { index, at };
    chart.root.classList.add("one");
    lines.forEach((line, other) => line.classList.toggle("hot", other === index));
    chart.plot.insertBefore(lines[index], dot);
    dot.setAttribute("cx", chart.sx(updates[at]));
    dot.setAttribute("cy", chart.sy(rows[index].alpha[at]));
    dot.setAttribute("visibility", "visible");
    return describe(rows[index], at);
  }

  function clear() {
    chart.root.classList.remove("one");
    dot.setAttribute("visibility", "hidden");
    hideTip();
  }

  function nearest(event) {
    const box = chart.root.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * SIZE.width;
    const y = ((event.clientY - box.top) / box.height) * SIZE.height;
    const closest = (values, distance) =>
      values.reduce((best, value, index) => (distance(value) < distance(values[best]) ? index : best), 0);
    const at = closest(updates, (update) => Math.abs(chart.sx(update) - x));
    return { at, index: closest(rows, (row) => Math.abs(chart.sy(row.alpha[at]) - y)) };
  }

  fill(chart.root, {
    tabindex: 0, role: "group", "aria-roledescription": "line chart",
    "aria-label": `α of the ${rows.length} heads of ${type.title} over updates. Up and down select a head, ` +
      "left and right an update, Enter shows the head in the explorer.",
    onpointermove(event) {
      const { index, at } = nearest(event);
      showTip(event, show(index, at));
    },
    onpointerleave: clear,
    onclick(event) {
      const { index, at } = nearest(event);
      if (TOUCH && tapped !== index) showTip(event, show(tapped = index, at));
      else choose(rows[index]);
    },
    onblur() { clear(); tapped = null; said.textContent = ""; },
    onkeydown(event) {
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Enter" && shown) choose(rows[shown.index]);
      if (!step) return;
      event.preventDefault();
      const from = shown ?? { index: -1, at: updates.length - 1 };
      const index = (from.index + step[0] + rows.length) % rows.length;
      said.textContent = show(index, Math.max(0, Math.min(updates.length - 1, from.at + step[1])));
    },
  }, []);
  return [chart.root, said];
}

// The checkpoint's update if the log continues beyond it, else null.
function updatesAfter(model) {
  const { updates } = model.trajectories;
  const update = model.about.update;
  return update && update < updates[updates.length - 1] ? update : null;
}

// Fade the part of the log beyond the checkpoint, and mark the checkpoint with a line.
function beyond(chart, update) {
  const [x, top, bottom] = [chart.sx(update), SIZE.top, SIZE.height - SIZE.bottom];
  const left = x > SIZE.width / 2;
  return svg("g", { class: "beyond" },
    svg("rect", { x, y: top, width: SIZE.width - SIZE.right - x, height: bottom - top }),
    svg("line", { x1: x, x2: x, y1: top, y2: bottom }),
    svg("text", { x: x + (left ? -4 : 4), y: top + 8, "text-anchor": left ? "end" : "start" }, "checkpoint"));
}

function trajectories(data, choose) {
  const scale = alphaScale(data);
  return data.models.filter((model) => model.trajectories).map((model) => {
    const { updates, recorded, heads } = model.trajectories;
    const types = typesOf(data).filter((type) => heads.some((row) => row.attention === type.key));
    const layers = 1 + Math.max(...heads.map((row) => row.layer));
    const after = updatesAfter(model);
    const notes = [
      after === null ? null : `The checkpoint was trained up to update ${whole(after)}. Later values of α are faded: ` +
        "the rest of this page describes the checkpoint.",
      recorded > updates.length ? `The lines show ${updates.length} of ${whole(recorded)} recorded updates.` : null,
    ];
    return [
      html("h3", {}, model.name),
      figure(`α over training of ${model.name}`,
        panels(types, (type) => trajectoryChart(model, type, scale, layers, (row) => choose(model, row))),
        legend(range(layers).map((layer) => `layer ${layer}`), (layer) => lineMark(layer, layerClass(layer, layers)))),
      notes.filter(Boolean).map((note) => html("p", { class: "note" }, note)),
    ];
  });
}

function alphaHistograms(data) {
  const width = 0.05;
  const greatest = Math.max(2, ...data.models.flatMap((model) => model.heads.map((row) => row.alpha)));
  const bins = Math.ceil((greatest - 1) / width - 1e-9);
  const count = (model, type) => {
    const counts = Array(bins).fill(0);
    for (const row of model.heads) {
      if (row.attention !== type.key) continue;
      counts[Math.max(0, Math.min(bins - 1, Math.floor((row.alpha - 1) / width + 1e-9)))] += 1;
    }
    return counts;
  };
  const types = typesOf(data);
  const high = Math.max(...types.flatMap((type) => data.models.flatMap((model) => count(model, type))));
  return figure("learned α",
    panels(types, (type) => {
      const counts = data.models.map((model) => count(model, type));
      const chart = frame({
        label: `Histogram of α, ${type.title}`,
        x: { low: 1, high: 1 + bins * width, label: "α" },
        y: { low: 0, high: high * 1.06, label: "heads", ticks: ticks(0, high, Math.min(5, high)) },
      });
      const bar = (chart.sx(1 + width) - chart.sx(1) - 1) / data.models.length;
      counts.forEach((row, index) => row.forEach((heads, bin) => {
        if (!heads) return;
        const from = 1 + bin * width;
        chart.plot.append(svg("rect", {
          class: `bar model-${index % 6}`, x: chart.sx(from) + 0.5 + index * bar, width: bar,
          y: chart.sy(heads), height: chart.sy(0) - chart.sy(heads),
        }, svg("title", {}, `${data.models[index].name}: ${heads} ${heads > 1 ? "heads" : "head"} with α from ` +
          `${from.toFixed(2)} to ${(from + width).toFixed(2)}`)));
      }));
      return chart.root;
    }),
    modelLegend(data, barMark)
  );
}

const modelLegend = (data, mark) =>
  data.models.length > 1 ? legend(data.models.map((model) => model.name), mark) : null;

function densityHistograms(data) {
  const sharesOfType = (type) => data.models.map((model) => {
    const total = model.densities[type.key].reduce((sum, value) => sum + value, 0);
    return model.densities[type.key].map((value) => value / total);
  });
  const types = typesOf(data);
  const high = 1.05 * Math.max(...types.flatMap((type) => sharesOfType(type).flat()));
  return figure("density",
    panels(types, (type) => {
      const shares = sharesOfType(type);
      const chart = frame({
        label: `Histogram of density, ${type.title}`,
        x: { low: 0, high: 1, label: "density (share of all possible pairs)" },
        y: { low: 0, high, label: "share of heads × sentences" },
      });
      shares.forEach((row, index) => chart.plot.append(
        svg("path", { class: `area model-${index % 6}`, d: outline(row, chart.sx, chart.sy) })));
      shares.forEach((row, index) => chart.plot.append(
        svg("path", { class: `line model-${index % 6}`, d: outline(row, chart.sx, chart.sy) })));
      return chart.root;
    }),
    modelLegend(data, lineMark)
  );
}

const layerAxis = (layers) => ({ low: -0.25, high: layers - 0.75, label: "layer", ticks: range(layers) });

function sortedDensities(data) {
  return data.models.map((model, index) => [
    html("h3", {}, model.name),
    figure(`density by layer of ${model.name}`, panels(typesOf(data).filter(
      (type) => model.heads.some((row) => row.attention === type.key)), (type) => {
      const rows = model.heads.filter((row) => row.attention === type.key);
      const layers = 1 + Math.max(...rows.map((row) => row.layer));
      const sorted = range(layers).map((layer) =>
        rows.filter((row) => row.layer === layer).sort((a, b) => b.density - a.density));
      const chart = frame({
        label: `Density of the heads of each layer, sorted, ${type.title}`,
        x: layerAxis(layers), y: { low: 0, high: 1.04, label: "density", ticks: [0, 0.2, 0.4, 0.6, 0.8, 1] },
      });
      range(Math.min(...sorted.map((layer) => layer.length))).forEach((rank) => {
        const points = sorted.map((layer, at) => [chart.sx(at), chart.sy(layer[rank].density)]);
        chart.plot.append(svg("path", { class: `line thin model-${index % 6}`, d: path(points) }));
        points.forEach(([x, y], at) => chart.plot.append(
          svg("circle", { class: `marker model-${index % 6}`, cx: x, cy: y, r: 3 }, svg("title", {},
            `${headName(sorted[at][rank])}: density ${sorted[at][rank].density.toFixed(3)}`))));
      });
      const union = model.layers.filter((row) => row.attention === type.key).map((row) => row.union_density);
      chart.plot.append(svg("path", {
        class: "line union", d: path(union.map((value, at) => [chart.sx(at), chart.sy(value)])),
      }));
      return chart.root;
    }),
    legend(["k-th densest head of each layer", "union of the heads' supports"], (place) =>
      lineMark(place, [`thin model-${index % 6}`, "union"][place]))),
  ]);
}

function diversity(data) {
  const high = 1.08 * Math.max(0.05, ...data.models.flatMap((model) => model.layers.map((row) => row.diversity)));
  return figure("diversity of the heads",
    panels(typesOf(data), (type) => {
      const values = data.models.map((model) =>
        model.layers.filter((row) => row.attention === type.key).map((row) => row.diversity));
      const layers = Math.max(...values.map((row) => row.length));
      const chart = frame({
        label: `Jensen–Shannon divergence of the heads of each layer, ${type.title}`,
        x: layerAxis(layers), y: { low: 0, high, label: "Jensen–Shannon divergence" },
      });
      values.forEach((row, index) => {
        const known = range(row.length).filter((layer) => row[layer] !== null); // a single head has no diversity
        const points = known.map((layer) => [chart.sx(layer), chart.sy(row[layer])]);
        chart.plot.append(svg("path", { class: `line model-${index % 6}`, d: path(points) }),
          ...points.map(([x, y], at) =>
            marker(index, x, y, `${data.models[index].name}, layer ${known[at]}: ${row[known[at]].toFixed(3)}`)));
      });
      return chart.root;
    }),
    modelLegend(data, markerMark)
  );
}
