// Function and certificate: the network layer by layer, and how far a bound on unseen errors reaches.
import { get } from "./api.js";
import { empty, fill, h, number, problem, rows } from "./dom.js";
import { figureCard } from "./figure_card.js";
import { gauge } from "./gauge.js";
import { watched } from "./watched.js";

export async function show(root, { query, signal }) {
  const [kept, about] = await Promise.all([get("/api/functions", signal), get("/api/about", signal)]);
  const subject = about.model ? `${about.model} on ${about.data}` : "a small network on digits";
  fill(root, h("h1", {}, "Function and certificate"), h("p", { class: "soft lead" }, `Of ${subject}: how many dimensions its function has, and a bound on its errors on unseen data.`),
    await section("Function, layer by layer", "function", kept.function, query.get("function"), "Look at the function", { samples: 300 }, functionView, signal),
    await section("Certificate", "certificate", kept.certificate, query.get("certificate"), "Fit a certificate", { iterations: 1500 }, certificateView, signal));
}

async function section(title, kind, kept, wanted, label, body, view, signal) {
  const told = h("div", { "aria-live": "polite" }), place = h("div", {});
  const button = h("button", { type: "button", class: kept.length ? null : "primary", onclick: start }, label);
  const select = h("select", { "aria-label": `${title}: which`, onchange: event => open(event.target.value) }, kept.map(one => h("option", { value: one.name, selected: one.name === wanted }, `${one.name} (${one.created})`)));
  async function open(name) {
    try { fill(place, await view(name, signal)); } catch (error) { if (error.name !== "AbortError") fill(place, problem(error)); }
  }
  function start() {
    return watched(told, button, kind, body, async (result, job) => { await open(new URLSearchParams(job.link.split("?")[1]).get(kind)); return null; }, signal);
  }
  if (kept.length) await open(wanted || kept[0].name);
  else fill(place, empty("Nothing yet", `${label}: it runs in a process of its own, and is kept.`));
  return h("section", { id: kind }, h("div", { class: "row" }, h("h2", {}, title), h("div", { class: "row" }, kept.length ? select : null, button)), told, place);
}

async function functionView(name, signal) {
  const found = await get(`/api/functions/${encodeURIComponent(name)}`, signal);
  const narrow = found.bottlenecks.length ? `Narrowest: ${found.bottlenecks.join(", ")}.` : "No hidden layer is narrower than the samples show.";
  return [h("section", { class: "verdict plain" }, h("p", {}, narrow), found.is_chain ? null : h("p", {}, "The function does not pass through every layer alone: a narrow one does not bound its rank."), found.limited.length ? h("p", {}, `Limited by the samples: ${found.limited.join(", ")}.`) : null),
    h("div", { class: "two" }, found.figures.map(figure => figureCard(figure, { height: 17 }))), h("div", { class: "two" }, h("div", { class: "card" }, h("h3", {}, "Rank of the function"), rows(found.rank)), h("div", { class: "card" }, h("h3", {}, "Cost of its weights"), rows(found.cost)))];
}

async function certificateView(name, signal) {
  const { certificate } = await get(`/api/certificates/${encodeURIComponent(name)}`, signal);
  const lines = list => list.length ? h("ul", { class: "note" }, list.map(line => h("li", {}, line))) : h("p", { class: "note" }, "None.");
  return [h("div", { class: "card" }, h("p", { class: "answer" }, `With probability at least ${(100 * certificate.confidence).toFixed(1)} % over the samples, the stochastic network errs on at most `, h("strong", {}, `${(100 * certificate.bound).toFixed(2)} %`), " of unseen data."), gauge(certificate),
    rows([["divergence of posterior from prior", number(Math.round(certificate.kl * 10) / 10)], ["samples, parameters", `${number(certificate.num_samples)}, ${number(certificate.num_parameters)}`], ["basis", certificate.basis], ["draws", `${number(certificate.num_draws)} of ${certificate.draws}`], ["fit", certificate.ending]])),
    h("div", { class: "two" }, h("div", { class: "card" }, h("h3", {}, "Assumed"), lines(certificate.assumptions)), h("div", { class: "card" }, h("h3", {}, "Doubts"), lines(certificate.doubts)))];
}
