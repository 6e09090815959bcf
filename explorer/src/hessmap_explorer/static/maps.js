// Maps: the stored ones, one of them in full, and a new one.
import { get } from "./api.js";
import { empty, fill, h, number, problem, short } from "./dom.js";
import { showMap } from "./map.js";
import { newMapForm } from "./new_map.js";

export async function show(root, { rest, query, signal }) {
  if (rest.length) return showMap(root, rest[0], query, signal);
  const [{ maps, refused }, about] = await Promise.all([get("/api/maps", signal), get("/api/about", signal)]);
  const tiles = maps.map(map => h("li", {}, h("a", { class: "card tile", href: `/maps/${encodeURIComponent(map.name)}` },
    h("div", { class: "row" }, h("strong", {}, map.name), h("span", { class: "badge" }, map.loss.replaceAll("_", " "))),
    h("span", {}, map.network), h("p", { class: "note" }, `${number(map.num_parameters)} parameters, ${number(map.num_samples)} samples, risk ${short(map.risk)}`),
    h("p", { class: "note" }, map.created.replace("T", " ").replace("Z", " UTC")))));
  fill(root, h("h1", {}, "Maps of curvature"), h("p", { class: "soft lead" }, about.model ? `Your model: ${about.model} on ${about.data}.` : "No model was served, so a small network is trained on digits. For your own: hessmap serve my_models:net --data my_data:train."),
    newMapForm(about, maps, signal), refused.map(message => problem({ message })), tiles.length ? h("ul", { class: "gallery" }, tiles) : empty("No map is stored yet", "Make one above, or in a terminal with hessmap map."));
}
