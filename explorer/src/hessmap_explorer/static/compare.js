// Compare: two maps side by side, what changed and what cannot be compared.
import { get } from "./api.js";
import { command, empty, fill, h, problem, table } from "./dom.js";
import { figureCard } from "./figure_card.js";
import { watched } from "./watched.js";

export async function show(root, { query, signal }) {
  const { maps } = await get("/api/maps", signal);
  const head = [h("h1", {}, "Compare two maps"), h("p", { class: "soft lead" }, "Two networks, or two checkpoints of one.")];
  if (maps.length < 2) return fill(root, head, empty("Two maps are needed", maps.length ? `Only ${maps[0].name} is stored. Make another one, for example of a later checkpoint.` : "None is stored yet. Make two, for example of two checkpoints.", h("p", {}, h("a", { href: "/maps" }, "Make a map"))));
  const names = maps.map(map => map.name);
  const select = (label, value) => h("label", { class: "field" }, h("span", {}, label), h("select", { onchange: draw }, names.map(name => h("option", { selected: name === value }, name))));
  const old = select("Before", query.get("old") || names[1]), recent = select("After", query.get("new") || names[0]);
  const place = h("div", { "aria-live": "polite" });
  async function draw() {
    const [before, after] = [old, recent].map(label => label.querySelector("select").value);
    if (before === after) return fill(place, empty("The same map twice", "Choose two different maps."));
    history.replaceState(null, "", `/compare?old=${encodeURIComponent(before)}&new=${encodeURIComponent(after)}`);
    try {
      const found = await get(`/api/compare?old=${encodeURIComponent(before)}&new=${encodeURIComponent(after)}`, signal);
      fill(place, found.identities.map(line => h("p", { class: "note" }, line)), found.caveats.length ? h("section", { class: "verdict open" }, found.caveats.map(line => h("p", {}, line))) : null,
        h("section", { class: "verdict plain" }, found.summary.map(line => h("p", {}, line))), h("div", { class: "two" }, found.figures.map(figure => figureCard(figure))),
        found.tables.map(one => [h("h2", {}, one.title), table(one, { label: one.title })]), found.undecided ? h("p", { class: "note" }, `${found.undecided}.`) : null, overlapSection(before, after, signal), h("h2", {}, "The same in a terminal"), command(found.command));
    } catch (error) { if (error.name !== "AbortError") fill(place, problem(error)); }
  }
  fill(root, head, h("div", { class: "card fields" }, old, recent), place);
  await draw();
}

// Eigenvectors are not kept: both networks are made again from the options of their maps.
function overlapSection(before, after, signal) {
  const place = h("div", { "aria-live": "polite" });
  const drawn = ({ overlap }) => figureCard(overlap, { height: 18 });
  const button = h("button", { type: "button", onclick: () => watched(place, button, "directions", { name: before, against: after }, drawn, signal) }, "Find the overlap of their eigenspaces");
  return [h("h2", {}, "Eigenspaces"), h("p", { class: "note" }, "Do both networks have the same sharpest directions? Maps store no eigenvectors: both networks are rebuilt from the options of their maps."), button, place];
}
