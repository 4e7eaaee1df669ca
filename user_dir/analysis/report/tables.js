// The tables of models, roles and heads.

function table(caption, head, rows) {
  const all = html("table", { class: "data" }, html("caption", { class: "hidden" }, caption),
    html("thead", {}, html("tr", {}, head)), html("tbody", {}, rows));
  const cells = () => [...all.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
  const shown = html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption }, all);
  return [shown, savers(caption, { table: cells })];
}

const column = (text, attributes = {}) => html("th", { scope: "col", ...attributes }, text);

// A head's name as a button that shows it in the explorer, or as plain text if there are no maps.
const headButton = (model, row, text, choose) => !model.maps ? text : html("button", {
  type: "button", class: "link", "aria-label": `Show ${row.attention} ${headName(row)} in the explorer`,
  onclick: () => choose(model, row),
}, text);

function summary(data) {
  const types = typesOf(data);
  return html("div", { class: "cards" }, data.models.map((model, index) => {
    const { checkpoint, update, averaged, corpus, subset, sentences } = model.about;
    const { source_lang: source, target_lang: target } = model.about;
    const split = corpus ? `${corpus}, ${subset}: ` : "";
    const facts = [
      ["checkpoint", update && !averaged ? `${checkpoint}, update ${whole(update)}` : checkpoint],
      ["average of", averaged && `${averaged.length} checkpoints, at the updates ${averaged.map(whole).join("; ")}`],
      ["measured on", `${split}${whole(sentences)} ${sentences === 1 ? "sentence" : "sentences"}`],
      ["languages", source && target ? `${source} → ${target}` : null],
    ];
    return html("article", { class: `card model-${index % 6}` },
      html("h2", {}, model.name),
      html("dl", {}, facts.filter(([, text]) => text).map(([name, text]) => [
        html("dt", {}, name), html("dd", {}, text)])),
      table(`α and density of ${model.name}`,
        [column("attention"), ...["heads", "min α", "mean α", "max α", "mean density"].map(
          (name) => column(name, { class: "number" }))],
        types.map((type) => {
          const rows = model.heads.filter((row) => row.attention === type.key);
          if (!rows.length) return null;
          const alphas = rows.map((row) => row.alpha);
          const density = mean(rows.map((row) => row.density));
          return html("tr", {}, html("th", { scope: "row" }, type.title),
            [rows.length, ...[Math.min(...alphas), mean(alphas), Math.max(...alphas)].map((alpha) => alpha.toFixed(3))]
              .map((text) => html("td", { class: "number" }, text)),
            html("td", { class: "number meter", style: `--share: ${density}` }, density.toFixed(3)));
        })));
  }));
}

function roles(data, choose) {
  const names = [...new Set(data.models.flatMap((model) => Object.keys(model.roles)))];
  const titles = Object.fromEntries(data.types.map((type) => [type.key, type.title]));
  return html("div", { class: "roles" }, names.map((name) => {
    const role = data.models.map((model) => model.roles[name]).find(Boolean);
    const meaning = data.measures[role.measure];
    return html("article", { class: "role" },
      html("h3", {}, name),
      html("p", { class: "note" }, meaning ? `${meaning}; ` : `${role.measure.replaceAll("_", " ")}; `,
        `at least ${role.threshold}`),
      data.models.map((model, index) => {
        const ranked = model.roles[name]?.heads ?? [];
        const threshold = model.roles[name]?.threshold;
        const earned = ranked.filter((head) => head.value >= threshold);
        const shown = earned.length ? earned.slice(0, 8) : ranked.slice(0, 3);
        const more = earned.length - shown.length;
        return html("div", { class: `of model-${index % 6}` },
          html("h4", {}, data.models.length > 1 ? `${model.name}: ` : "",
            earned.length ? `${earned.length} ${earned.length > 1 ? "heads" : "head"}`
              : ranked.length ? "no head; the closest are" : "not defined here"),
          html("ol", {}, shown.map((head) => html("li", { class: earned.length ? null : "below" },
            html("span", { class: "share", style: `--share: ${head.value}` }, head.value.toFixed(3)),
            headButton(model, head, `${titles[head.attention]}, ${headName(head)}`, choose)))),
          more > 0 ? html("p", { class: "note" }, `and ${more} more`) : null);
      }));
  }));
}

const HIDDEN_COLUMNS = ["attention", "layer", "head", "roles"];

function heads(data, choose) {
  return data.models.map((model) => {
    const measures = Object.keys(model.heads[0]).filter((name) => !HIDDEN_COLUMNS.includes(name));
    const order = data.types.map((type) => type.key);
    const place = (row) => (order.indexOf(row.attention) * 1000 + row.layer) * 1000 + row.head;
    const body = html("tbody");
    let sorted = { name: null, down: false };

    function draw() {
      const value = (row) => (sorted.name === null ? -place(row) : row[sorted.name] ?? -Infinity);
      const rows = [...model.heads].sort((a, b) => value(b) - value(a) || place(a) - place(b));
      if (sorted.name !== null && !sorted.down) rows.reverse();
      body.replaceChildren(...rows.map((row) => html("tr", {},
        html("th", { scope: "row" }, headButton(model, row, shortName(row), choose)),
        measures.map((name) => html("td", { class: "number" }, row[name] === null ? "–" : row[name].toFixed(3))),
        html("td", {}, (row.roles ?? []).join(", ")))));
    }

    function sortBy(name, header) {
      sorted = { name, down: sorted.name === name ? !sorted.down : true };
      for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      draw();
    }

    const headers = measures.map((name) => {
      const header = column(null, { class: "number", title: data.measures[name] });
      header.replaceChildren(html("button", { type: "button", class: "sort", onclick: () => sortBy(name, header) },
        name.replaceAll("_", " ")));
      return header;
    });
    const caption = `Every head of ${model.name}`;
    const values = () => [["attention", "layer", "head", ...measures, "roles"], ...model.heads.map((row) =>
      [row.attention, row.layer, row.head, ...measures.map((name) => row[name]), (row.roles ?? []).join("; ")])];
    // Drawn when first opened, because it is long.
    return html("details", { ontoggle: () => body.hasChildNodes() || draw() }, html("summary", {}, caption),
      savers(caption, { table: values }),
      html("div", { class: "scroll tall", tabindex: 0, role: "group", "aria-label": caption },
        html("table", { class: "data" }, html("caption", { class: "hidden" }, caption),
          html("thead", {}, html("tr", {}, column("head"), headers, column("roles"))), body)));
  });
}
