// The sections of the page, the sentences first. A section without data is left out.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const withMaps = data.models.some((model) => model.maps);
const withAlphas = data.models.some((model) => model.trajectories);
// Statistics of the few sentences of a translation say little about a head; α and the maps remain.
const ofSplit = !translated();

const parts = [
  ["explorer", translated() ? "The translation" : "Sentences", () => {
    exploring = explorer(data);
    return exploring.root;
  }, "The tokens that a head attends to. Choose a head by its thumbnail and a query by its row; "
    + "the page's URL keeps your choice.",
  withMaps],
  ["models", "Models", () => summary(data), null, true],
  ["trajectories", "α over training", () => trajectories(data, choose),
    "Each line is a head; its colour shows the layer. " + (TOUCH ? "Tap a line to see its name, and again"
      : "Point at a line to see its name, and click it") + " to explore the head.", withAlphas],
  ["alphas", "Learned α", () => alphaHistograms(data), "The number of heads with each value of α.", true],
  ["densities", "Density",  () => densityHistograms(data),
    "The share of all possible query–key pairs whose weight is above zero, for every head on every sentence.", ofSplit],
  ["layers", "Density by layer", () => sortedDensities(data),
    "The heads of each layer, sorted by mean density. "
      + "The union of their supports is the set of pairs that any head of the layer attends to.",
    ofSplit],
  ["diversity", "Diversity of the heads", () => diversity(data),
    "Jensen–Shannon divergence between the heads of a layer, as a share of its maximum: "
      + "0 if all heads are identical, at most 1.", ofSplit],
  ["roles", "Roles", () => roles(data, choose),
    "Heads with a recognisable function: one of their measures reaches a threshold.",
    ofSplit && data.models.some((model) => Object.keys(model.roles).length)],
  ["heads", "Every head", () => heads(data, choose),
    "All measures of all heads; L is the layer, H the head. The headers of the columns sort them.", true],
];

let exploring = null;

// Show a head in the explorer, from anywhere on the page.
function choose(model, row) {
  if (!model.maps) return;
  exploring.choose(model, row).then(() => {
    showExplorer(matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth");
  });
}

function showExplorer(behavior) {
  const section = document.getElementById("explorer");
  section.scrollIntoView({ behavior });
  section.querySelector("h2").focus({ preventScroll: true });
}

// A URL such as #explorer?sentence=3&head=1.2 opens the explorer there.
function follow() {
  const chosen = exploring && location.hash.match(/^#explorer[?](.*)$/);
  return chosen ? exploring.follow(new URLSearchParams(chosen[1])).then(() => showExplorer("auto")) : null;
}

for (const [id, title, draw, about] of parts.filter((part) => part.at(-1))) {
  const models = id === "models";
  main.append(html("section", { id, "aria-label": models ? title : null, "aria-labelledby": models ? null : `${id}-title` },
    models ? null : html("h2", { id: `${id}-title`, tabindex: -1 }, title),
    about ? html("p", { class: "about" }, about) : null, draw()));
  document.getElementById("sections").append(html("li", {}, html("a", { href: `#${id}` }, title)));
}
addEventListener("hashchange", follow);
addEventListener("scroll", hideTip, { capture: true, passive: true });
Promise.resolve(follow()).then(() => { document.documentElement.dataset.ready = "true"; });
