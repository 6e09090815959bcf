// Predict: an architecture in chips, its three ranks as you type, the curve over what you drag, the check in exact arithmetic.
import { get, post, sleep } from "./api.js";
import { command, copyButton, fill, h, number, percent, problem, symbol } from "./dom.js";
import { control, many, read, spelled } from "./fields.js";
import { figureCard } from "./figure_card.js";

const SPAN = 2; // a curve runs to twice the value, at least to the end of the slider
const WHAT = {
  loss: "All second derivatives of the loss; the sum of the other two.",
  outer_product: "The Gauss-Newton part: gradients of the outputs, weighted by the second derivative of the loss.",
  functional: "The rest: second derivatives of the outputs, weighted by the residuals.",
};

export async function show(root, { query, signal }) {
  const { families, questions } = await get("/api/predict/families", signal);
  const state = { family: families[0], values: {}, over: null };
  const find = name => families.find(family => family.name === name) || families[0];
  // Some questions are about biases alone.
  const fieldsOf = family => [...family.fields, ...family.asks.map(name => questions[name])].filter(field => !field.needs || state.values[field.needs]);

  function start(family, given = new URLSearchParams()) {
    state.family = family;
    const fields = [...family.fields, ...family.asks.map(name => questions[name])];
    state.values = Object.fromEntries(fields.map(field => [field.name, read(field, given.get(field.name))]));
    state.over = given.get("over") || defaultOver(family);
  }
  const defaultOver = family => {
    const field = family.fields.find(one => one.kind === "counts" || one.kind === "count");
    return field.kind === "counts" ? `${field.name}.1` : field.name;
  };

  function address(withOver = false) {
    const given = new URLSearchParams({ family: state.family.name });
    for (const field of fieldsOf(state.family)) {
      const value = spelled(state.values[field.name]);
      if (value !== spelled(field.default)) given.set(field.name, value);
    }
    if (withOver && state.over !== defaultOver(state.family)) given.set("over", state.over);
    return given;
  }

  const chosen = h("div", { class: "families", role: "radiogroup", "aria-label": "Kind of network" });
  const form = h("form", { class: "card controls", onsubmit: event => event.preventDefault() });
  const ranks = h("section", { class: "ranks", "aria-live": "polite", "aria-label": "Predicted ranks" });
  const details = h("section", { class: "card details" });
  const checked = h("div", { class: "checked", "aria-live": "polite" });
  const curve = h("div", { class: "curve" });
  let card = null, asking = null, isAsked = false, predicted = null, controls = new Map();

  function drawForm() {
    fill(chosen, families.map(family => h("label", { class: "family", title: family.help }, h("input", { type: "radio", name: "family", value: family.name, checked: family === state.family, onchange: () => { start(family); drawForm(); update(); } }), h("span", {}, family.label))));
    controls = new Map(fieldsOf(state.family).map(field => [field.name, control(field, state.values[field.name], {
      change(value, moved) {
        state.values[field.name] = value;
        if (moved) state.over = moved;
        if (fieldsOf(state.family).length !== controls.size) { drawForm(); controls.get(field.name).querySelector("input, select").focus(); }
        update();
      },
      rebuild(value) { state.values[field.name] = value; fitLayers(field.name, value); state.over = defaultOver(state.family); drawForm(); update(); },
    })]));
    const asked = new Set(state.family.asks);
    const those = isOfData => [...controls].filter(([name]) => asked.has(name) === isOfData).map(([, made]) => made);
    fill(form, h("p", { class: "note" }, state.family.help), h("div", { class: "fields" }, those(false)), asked.size ? [h("h3", {}, "Loss and data"), h("div", { class: "fields" }, those(true))] : null);
  }

  // Kernels and strides have one entry for each convolution.
  function fitLayers(name, value) {
    for (const field of state.family.fields.filter(one => one.per_layer_of === name)) {
      const length = value.length - field.fewer, old = state.values[field.name];
      state.values[field.name] = Array.from({ length }, (_, place) => old[Math.min(place, old.length - 1)]);
    }
  }

  async function update() {
    history.replaceState(null, "", `/predict?${address(true)}`);
    fill(checked);
    if (asking) { isAsked = true; return; }
    do {
      isAsked = false;
      asking = ask();
      await asking;
    } while (isAsked);
    asking = null;
  }

  async function ask() {
    const given = address();
    try {
      predicted = await get(`/api/predict?${given}`, signal);
      drawRanks();
    } catch (error) {
      if (error.name === "AbortError") return;
      predicted = null;
      fill(ranks, problem(error));
      fill(details);
      return;
    }
    if (!isAsked) await drawCurve(given).catch(error => error.name === "AbortError" || fill(curve, problem(error)));
  }

  function drawRanks() {
    const size = predicted.num_parameters;
    for (const [name, most] of Object.entries(predicted.largest)) controls.get(name)?.limit(most);
    fill(ranks, predicted.ranks.map(rank => h("article", { class: `rank card ${rank.part}`, "data-part": rank.part },
      h("h2", {}, symbol(rank.part), ` ${rank.part.replace("_", " ")}`), h("p", { class: "note what" }, WHAT[rank.part]),
      h("p", { class: "value" }, number(rank.value)),
      h("div", { class: "bar-track", role: "img", "aria-label": `${percent(rank.share)} of the parameters` }, h("div", { class: "bar-fill", style: `width:${100 * Math.min(1, rank.share)}%` })),
      h("p", { class: "note" }, `${percent(rank.share)} of ${many(size, "parameter")}`),
      h("p", {}, h("span", { class: `badge ${rank.kind.replaceAll(" ", "-")}` }, rank.kind), rank.num_cases ? h("span", { class: "note" }, ` held on ${number(rank.num_cases)} networks`) : null),
      h("p", { class: "note" }, rank.meaning),
      h("p", { class: "note source" }, rank.reference))));
    fill(details, h("div", { class: "row" }, h("h3", {}, predicted.network), h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: check }, "Check in exact arithmetic"), copyButton(location.href, "Copy link"))),
      checked, predicted.assumptions.length ? h("ul", { class: "note" }, predicted.assumptions.map(line => h("li", {}, line))) : null,
      predicted.command ? command(predicted.command) : null, h("details", {}, h("summary", {}, "Python"), command(predicted.python)));
  }

  async function drawCurve(given) {
    const [first, place] = state.over.split(".");
    const field = fieldsOf(state.family).find(one => one.name === first);
    if (!field) return;
    const value = place === undefined ? state.values[first] : state.values[first][Number(place)];
    const limit = predicted.largest[first] ?? Math.max(field.high, SPAN * (value ?? 0));
    const figure = await get(`/api/predict/curve?${given}&over=${state.over}&low=${field.low}&high=${Math.max(field.low + 1, limit)}`, signal);
    if (value !== null && value !== undefined) figure.lines.push({ at: value, axis: "x", label: `now ${number(value)}`, end: null, colour: "faint" });
    if (card && card.isConnected) { card.querySelector("figcaption h3").textContent = figure.title; await card.drawn; await card.redraw(figure); } else { card = figureCard(figure, { height: 18 }); fill(curve, card); }
  }

  async function check() {
    fill(checked, h("p", { class: "note" }, "Starting …"));
    const asked = Object.fromEntries(address());
    try {
      let job = await post("/api/jobs/check", { query: asked });
      while (job.status === "running" || job.status === "waiting") {
        const { step, note } = job.progress;
        fill(checked, h("p", { class: "note row" }, h("span", { class: "spinner" }), `${step || "Starting"} ${note || ""}`, h("button", { type: "button", class: "quiet", onclick: () => post(`/api/jobs/${job.number}/stop`, {}) }, "Stop")));
        await sleep(300, signal);
        job = await get(`/api/jobs/${job.number}`, signal);
      }
      if (JSON.stringify(asked) !== JSON.stringify(Object.fromEntries(address()))) return fill(checked);
      fill(checked, job.status === "done" ? job.result.check.map(compared).filter(Boolean) : h("p", { class: "note" }, job.error || "Stopped."));
    } catch (error) {
      if (error.name !== "AbortError") fill(checked, problem(error));
    }
  }

  function compared(found) {
    const isTeacher = !state.family.asks.length;
    if (isTeacher && found.part !== "outer_product") return null;
    const claim = predicted.ranks.find(rank => rank.part === (isTeacher ? "loss" : found.part));
    const agrees = isTeacher ? (claim.kind === "upper bound" ? found.value <= claim.value : found.value === claim.value) : found.agrees;
    const word = agrees === null ? "no claim to compare with" : agrees ? "agrees" : "disagrees";
    return h("p", { class: `verdict ${agrees === null ? "open" : agrees ? "holds" : "fails"}` }, symbol(isTeacher ? "loss" : found.part), ` exact rank ${number(found.value)}, predicted ${number(claim.value)} (${claim.kind}): `, h("strong", {}, word), `. Wrong with probability at most ${found.failure_bound.toExponential(0)}.`);
  }

  start(find(query.get("family")), query);
  drawForm();
  fill(root, h("h1", {}, "Predict the ranks of a Hessian"), h("p", { class: "soft lead" }, "In how many directions the loss is curved, from the architecture and a few integers alone: no weights, no data. Type, or drag a slider."),
    h("div", { class: "split" }, h("div", {}, chosen, form), h("div", {}, ranks, curve, details)));
  await update();
}
