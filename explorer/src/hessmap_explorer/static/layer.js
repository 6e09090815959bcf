// One layer of a map: its block of the loss Hessian and its factors.
import { fill, h, number, percent, rows, short } from "./dom.js";
import { figureCard } from "./figure_card.js";
import { watched } from "./watched.js";

export function layerDetails(place, map, which, signal) {
  const layer = map.layers.blocks[which];
  if (!layer) return;
  const rank = layer.rank && `${number(layer.rank.value)} of ${number(layer.num_parameters)}, gap ${short(layer.rank.gap)}${layer.rank.decidable ? "" : " (no clear gap)"}`;
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

// A map keeps no eigenvectors: the network is made again from its options, in a process of its own.
function directionsSection(map, layer, signal) {
  const place = h("div", { "aria-live": "polite" });
  function drawn(found) {
    const picture = number => figureCard(found.vectors[number], { height: 18 });
    const shown = h("div", {}, picture(0));
    const chosen = h("label", { class: "field" }, h("span", {}, "Eigenvector"), h("select", { onchange: event => fill(shown, picture(Number(event.target.value))) }, found.eigenvalues.map((value, number) => h("option", { value: number }, `${number + 1}: eigenvalue ${short(value)}`))));
    const factors = found.factors ? figureCard(found.factors, { height: 18 }) : h("p", { class: "note" }, found.factors_gap);
    return [found.converged ? null : h("p", { class: "note" }, "Not converged: the residuals are above the tolerance."), chosen, h("div", { class: "two" }, shown, factors)];
  }
  const button = h("button", { type: "button", onclick: () => watched(place, button, "directions", { name: map.name, layer: layer.name }, drawn, signal) }, "Find its eigenvectors");
  return h("section", {}, h("h3", {}, "Its sharpest directions"), h("p", { class: "note" }, "A map stores no eigenvectors: the network is rebuilt from the options of the map and measured again."), button, place);
}
