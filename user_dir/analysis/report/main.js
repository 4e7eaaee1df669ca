// The page: its sections, in this order, each of what there is data for.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const withMaps = data.models.some((model) => model.maps);

const parts = [
  ["models", "Models", () => summary(data), null],
  ["trajectories", "α over training", () => trajectories(data, choose),
    data.models.some((model) => model.trajectories)
      ? "Each line is a head, its shade the layer. Point at a line for its name; click it to see the head at work."
      : "No α log was given. Train with --alpha-log FILE."],
  ["alphas", "Learned α", () => alphaHistograms(data), "How many heads ended with which α."],
  ["densities", "Density",  () => densityHistograms(data),
    "The share of the possible pairs of query and key with a weight above zero, of every head on every sentence."],
  ["layers", "Density by layer", () => sortedDensities(data),
    "The heads of each layer sorted by mean density. The union of their supports shows what a layer sees as a whole."],
  ["diversity", "Diversity of the heads", () => diversity(data),
    "Jensen–Shannon divergence between the heads of a layer, over log H: 0 if all heads attend alike, at most 1."],
  ["roles", "Roles", () => roles(data, choose), "What single heads do, where one measure stands out."],
  ["explorer", "Sentence explorer", () => {
    if (!withMaps) return null;
    exploring = explorer(data);
    return exploring.root;
  }, withMaps
    ? "Who attends to whom: choose a head by its picture, then a query by its row."
    : "No attention maps were given. Write them with head_stats.py --dump-attention FILE."],
  ["heads", "Every head", () => heads(data, choose), "All measures; a column's name sorts by it."],
];

let exploring = null;

// Show a head in the explorer, from wherever it was named.
function choose(model, row) {
  if (!model.maps) return;
  exploring.choose(model, row).then(() => {
    const section = document.getElementById("explorer");
    section.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    section.querySelector("h2").focus({ preventScroll: true });
  });
}

for (const [id, title, draw, about] of parts) {
  const models = id === "models";
  main.append(html("section", { id, "aria-label": models ? title : null, "aria-labelledby": models ? null : `${id}-title` },
    models ? null : html("h2", { id: `${id}-title`, tabindex: -1 }, title),
    about ? html("p", { class: "about" }, about) : null, draw() ?? []));
  document.getElementById("sections").append(html("li", {}, html("a", { href: `#${id}` }, title)));
}
document.documentElement.dataset.ready = "true";
