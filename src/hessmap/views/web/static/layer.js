// One layer of a map: its block of the loss Hessian and its factors.
import { fill, h, number, percent, rows, short } from "./dom.js";
import { figureCard } from "./figure_card.js";
import { watched } from "./watched.js";

export function layerDetails(place, map, which, signal) {
  const layer = map.layers.blocks[which];
  if (!layer) return;
  const rank = layer.rank && `${number(layer.rank.value)} of ${number(layer.num_parameters)}, gap ${short(layer.rank.gap)}${layer.rank.decidable ? "" : " (no clear cut)"}`;
  const block = [
    ["shape", layer.shape], ["parameters", number(layer.num_parameters)], ...(rank ? [["rank", rank]] : []),
    ["largest eigenvalue", layer.top_eigenvalue === null ? "not estimated: there was no time" : short(layer.top_eigenvalue) + (layer.top_residual ? ` ± ${short(layer.top_residual)}` : "")],
    ["trace", short(layer.trace) + (layer.trace_error ? ` ± ${short(layer.trace_error)}` : "")], ["share of the curvature", percent(layer.curvature_share)],
    ...(layer.direction_share === null ? [] : [["share of the sharpest direction", percent(layer.direction_share)]]),
  ];
  const factors = layer.factors;
  const few = factors && factors.num_classes - 1;
  fill(place, h("article", { class: "card", id: "layer", tabindex: "-1", "data-layer": layer.name }, h("h2", {}, `Layer ${layer.name}`), h("div", { class: "two" },
    h("div", {}, h("h3", {}, "Its block of the loss Hessian"), rows(block)),
    h("div", {}, h("h3", {}, "Its factors"), factors ? rows([
      ["input factor E[x xᵀ]", `first eigenvalue ${short(factors.input_ratio)} times the second`], ["mean input", `squared cosine ${short(factors.mean_alignment)} with the first eigenvector`],
      ...(factors.outlier_share === null ? [] : [[`output factor, ${few} largest`, `hold ${percent(factors.outlier_share)} of it`], [`eigenvalue ${few} over ${few + 1}`, short(factors.outlier_ratio)]]),
      ...(factors.kronecker_overlap === null ? [] : [["sharpest directions of block and product", `overlap ${short(factors.kronecker_overlap)} (chance ${short(factors.chance)})`]]),
    ]) : h("p", { class: "note" }, "This layer has no factors."))), directionsSection(map, layer, signal)));
}

// A map keeps no eigenvectors: the network is made again by its command, in a process of its own.
function directionsSection(map, layer, signal) {
  const place = h("div", { "aria-live": "polite" });
  const axis = label => ({ label, scale: "linear", limits: null, names: [], is_reversed: false });
  const figure = (title, x, y, traces, lines = []) => ({ title, x, y, traces, lines, python: "", note: "", is_square: false });
  const trace = more => ({ label: "", kind: "both", x: [], y: [], low: [], high: [], colour: "series0", keys: [], z: [], palette: "", opacity: 1, in_legend: true, ...more });
  function drawn(found) {
    const count = list => list.map((_, number) => number + 1);
    const picture = number => {
      const z = found.vectors[number], most = Math.max(...z.flat().map(Math.abs));
      return figureCard(figure(`Eigenvector ${number + 1}, as its weight`, axis("input"), { ...axis("output"), is_reversed: true }, [trace({ kind: "heatmap", x: count(z[0]), y: count(z), z, low: [-most], high: [most], palette: "diverging" })]), { height: 16 });
    };
    const shown = h("div", {}, picture(0));
    const chosen = h("label", { class: "field" }, h("span", {}, "Eigenvector"), h("select", { onchange: event => fill(shown, picture(Number(event.target.value))) }, found.eigenvalues.map((value, number) => h("option", { value: number }, `${number + 1}: eigenvalue ${short(value)}`))));
    const spectra = found.factors && figureCard(figure("Eigenvalues of the factors", axis("index"), { ...axis("eigenvalue"), scale: "log" }, [trace({ label: "inputs, E[x xᵀ]", x: count(found.factors.input), y: found.factors.input.map(value => value > 0 ? value : null), colour: "outer_product" }), trace({ label: "outputs, E[M]", x: count(found.factors.output), y: found.factors.output.map(value => value > 0 ? value : null), colour: "functional" })]), { height: 16 });
    return [found.converged ? null : h("p", { class: "note" }, "Not converged: the residuals are larger than asked for."), h("div", { class: "two" }, h("div", {}, chosen, shown), spectra || h("p", { class: "note" }, found.factors_gap || ""))];
  }
  const button = h("button", { type: "button", onclick: () => watched(place, button, "directions", { name: map.name, layer: layer.name }, drawn, signal) }, "Find its eigenvectors");
  return h("section", {}, h("h3", {}, "Its sharpest directions"), h("p", { class: "note" }, "A map keeps no eigenvectors: the network is made again by the command of the map, and measured."), button, place);
}
