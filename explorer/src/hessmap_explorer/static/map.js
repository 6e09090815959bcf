// One map: the whole first, the spectrum with its threshold, the layers, how it was made.
import { get } from "./api.js";
import { command, fill, h, number, rows, short, symbol, table } from "./dom.js";
import { figureCard } from "./figure_card.js";
import { layerDetails } from "./layer.js";
import { thresholdLine } from "./threshold.js";

export async function showMap(root, name, query, signal) {
  fill(root, h("p", { class: "soft" }, `Loading ${name} …`));
  const map = await get(`/api/maps/${encodeURIComponent(name)}`, signal);
  const network = map.networks[0];
  const stats = map.whole.map(([label, value]) => h("div", { class: "card stat" }, h("span", {}, label), h("strong", {}, value)));
  fill(root, h("p", { class: "soft" }, h("a", { href: "/maps" }, "Maps"), ` / ${map.name}`), h("h1", {}, network.description),
    h("p", { class: "soft lead" }, `${network.facts}.`), h("div", { class: "stats" }, stats),
    h("section", { class: "verdict plain" }, map.summary.map(verdict => h("p", {}, verdict))),
    map.networks.filter(one => one.is_dense).map(one => spectrumSection(map, one, query, signal)),
    h("h2", {}, "Density"), figureCard(map.density, { height: 18 }), layersSection(map, signal),
    h("h2", {}, "How it was made"), map.command ? command(map.command) : null,
    rows([...(map.work ? [["took", `${short(map.work.seconds)} s, ${number(map.work.products)} products`]] : []), ["made with", Object.entries(map.versions).map(([one, version]) => `${one} ${version}`).join(", ") || "–"]]),
    h("p", {}, h("a", { href: `/api/maps/${encodeURIComponent(name)}/record`, download: `${name}.json` }, "Download the record (JSON)")));
}

function spectrumSection(map, network, query, signal) {
  const ranks = h("div", { class: "ranks", "aria-live": "polite", "aria-label": "Ranks at the threshold" });
  const asked = network.number === 0 ? Number(query.get("tolerance")) : 0;
  const start = asked > 0 && asked < 1 ? asked : network.tolerance;
  let wanted = null, isAsking = false, shown = start;

  async function update(tolerance) {
    wanted = tolerance;
    if (isAsking) return;
    isAsking = true;
    while (wanted !== null && !signal.aborted) {
      const asking = wanted;
      wanted = null;
      try {
        const found = await get(`/api/maps/${encodeURIComponent(map.name)}/rank?tolerance=${asking}&network=${network.number}`, signal);
        shown = asking;
        fill(ranks, found.ranks.map(rankCard));
      } catch (error) { if (error.name !== "AbortError") fill(ranks, h("p", { class: "note" }, error.message)); }
    }
    isAsking = false;
    if (network.number === 0 && !signal.aborted) history.replaceState(null, "", shown === network.tolerance ? location.pathname : `?tolerance=${shown.toExponential(3)}`);
  }
  const line = thresholdLine(start, update);
  const card = figureCard(network.spectrum, { height: 24, overlay: line });
  card.drawn.then(line.attach, () => {});
  if (start === network.tolerance) fill(ranks, network.ranks.map(rankCard)); else update(start);
  return h("section", { class: "spectrum", "data-network": network.number }, h("h2", {}, network.number ? `Spectrum of the ${network.name}` : "Spectrum"),
    h("p", { class: "note" }, "Drag the dashed line, or move it with the arrow keys: eigenvalues below it count as zero. Drag in the figure to zoom, double-click to reset."),
    ranks, card, network.gap ? h("p", { class: "note" }, `No prediction: ${network.gap}`) : null, network.notes.map(note => h("p", { class: "note" }, note)));
}

function rankCard(rank) {
  const predicted = rank.predicted === null ? "no prediction" : `predicted ${number(rank.predicted)}, ${rank.kind}`;
  const gap = rank.gap === null ? "infinite" : short(rank.gap);
  return h("article", { class: `card rank ${rank.part}`, "data-part": rank.part }, h("h2", {}, symbol(rank.part), " rank"), h("p", { class: "value" }, number(rank.value)),
    h("p", { class: "note" }, `of ${number(rank.size)}; ${predicted}`), rank.certified !== null ? h("p", { class: "note" }, `certified ${number(rank.certified)}`) : null,
    h("p", {}, h("span", { class: `badge ${rank.decidable ? "exact" : "open"}` }, rank.decidable ? "clear gap" : "no clear gap"), h("span", { class: "note gap" }, ` gap ${gap}`)));
}

function layersSection(map, signal) {
  const details = h("section", { "aria-live": "polite" });
  const open = place => {
    layerDetails(details, map, place, signal);
    details.scrollIntoView({ block: "nearest", behavior: "smooth" });
  };
  const { layers } = map;
  const byName = name => open(layers.blocks.findIndex(block => block.name === name));
  const card = figureCard(layers.figure, { height: Math.min(40, 7 + 2.4 * layers.blocks.length), onClick: byName });
  const listed = table(layers.table, { label: "Layers", row: (line, place) => ({ tabindex: "0", "aria-label": `Layer ${line[0]}`, onclick: () => open(place), onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(place); } } }) });
  return h("section", {}, h("h2", {}, "Layers"), h("p", { class: "note" }, "Click a layer for its block, its factors and its eigenvectors."), card, listed, h("p", { class: "note" }, `${layers.legend}.`), details);
}
