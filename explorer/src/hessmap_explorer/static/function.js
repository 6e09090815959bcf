// Function and certificate: the network layer by layer, and how far a bound on unseen errors reaches.
import { get } from "./api.js";
import { empty, fill, h, problem, rows, table } from "./dom.js";
import { figureCard } from "./figure_card.js";
import { watched } from "./watched.js";

export async function show(root, { query, signal }) {
  const [kept, about] = await Promise.all([get("/api/functions", signal), get("/api/about", signal)]);
  const subject = about.model ? `${about.model} on ${about.data}` : "a small network on digits";
  fill(root, h("h1", {}, "Function and certificate"), h("p", { class: "soft lead" }, `Of ${subject}: how many dimensions its function has, its loss along a plane, and a bound on its errors on unseen data.`), kept.refused.map(message => problem({ message })),
    await section("Function, layer by layer", "function", kept.function, query.get("function"), "Analyse the function", { samples: 300 }, functionView, signal),
    await section("Loss along the sharpest directions", "plane", kept.plane, query.get("plane"), "Evaluate the loss", {}, planeView, signal),
    await section("Certificate", "certificate", kept.certificate, query.get("certificate"), "Fit a certificate", { iterations: 1500 }, certificateView, signal));
}

// What was found before is listed; a new one is made by a job and joins the list.
async function section(title, kind, kept, wanted, label, body, view, signal) {
  const told = h("div", { "aria-live": "polite" }), place = h("div", {});
  const select = h("select", { "aria-label": `${title}: which`, onchange: event => open(event.target.value) }, kept.map(one => option(one.name, one.created, one.name === wanted)));
  const button = h("button", { type: "button", class: kept.length ? null : "primary", onclick: () => watched(told, button, kind, body, made, signal) }, label);
  async function open(name) {
    try { fill(place, await view(name, signal)); } catch (error) { if (error.name !== "AbortError") fill(place, problem(error)); }
  }
  async function made({ name }) {
    select.prepend(option(name, "now", true));
    select.hidden = false;
    await open(name);
    return [];
  }
  select.hidden = !kept.length;
  if (kept.length) await open(kept.some(one => one.name === wanted) ? wanted : kept[0].name);
  else fill(place, empty("Nothing computed yet", `Press "${label}". It runs in its own process, and the result is stored.`));
  return h("section", { id: kind }, h("div", { class: "row" }, h("h2", {}, title), h("div", { class: "row" }, select, button)), told, place);
}

const option = (name, created, selected) => h("option", { value: name, selected }, `${name} (${created})`);

async function functionView(name, signal) {
  const found = await get(`/api/functions/${encodeURIComponent(name)}`, signal);
  return [h("section", { class: "verdict plain" }, h("p", {}, found.verdict)), h("div", { class: "two" }, found.figures.map(figure => figureCard(figure, { height: 17 }))),
    h("h3", {}, "Layers"), table(found.layers, { label: "Layers" }), found.notes.map(line => h("p", { class: "note" }, line)),
    h("div", { class: "two" }, h("div", { class: "card" }, h("h3", {}, "Its Jacobians"), rows(found.jacobians)), h("div", { class: "card" }, h("h3", {}, "Squared norm of the weights"), table(found.costs, { label: "Squared norms" })))];
}

async function planeView(name, signal) {
  const found = await get(`/api/planes/${encodeURIComponent(name)}`, signal);
  return [h("section", { class: "verdict plain" }, found.findings.map(line => h("p", {}, line))), h("div", { class: "two" }, found.figures.map(figure => figureCard(figure, { height: 22 })))];
}

async function certificateView(name, signal) {
  const found = await get(`/api/certificates/${encodeURIComponent(name)}`, signal);
  const [before, bound, after] = found.promise;
  const remarks = Object.entries(found.remarks).filter(([, lines]) => lines.length);
  return [h("section", { class: "verdict plain answer" }, h("p", {}, `With confidence ${(100 * found.confidence).toFixed(1)} % ${before}`, h("strong", {}, bound), `${after}.`)),
    h("div", { class: "two" }, figureCard(found.gauge, { height: 20 }), h("div", { class: "card" }, h("h3", {}, "Numbers"), rows(found.numbers))),
    h("div", { class: "two" }, remarks.map(([head, lines]) => h("div", { class: "card" }, h("h3", {}, head), h("ul", { class: "note" }, lines.map(line => h("li", {}, line))))))];
}
