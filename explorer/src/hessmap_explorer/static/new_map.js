// A new map: the model that the explorer was started with, or a small network of given widths.
import { h } from "./dom.js";
import { watched } from "./watched.js";

export function newMapForm(about, maps, signal) {
  const taken = new Set(maps.map(map => map.name));
  let number = maps.length + 1;
  while (taken.has(`run${number}`)) number += 1;
  const told = h("div", { "aria-live": "polite" });
  const input = (label, name, type, value, more = {}) => h("label", { class: "field" }, h("span", {}, label), h("input", { type, name, value, ...more }));
  const losses = ["cross_entropy", "squared", "log_cosh"].map(loss => h("option", { value: loss, selected: loss === about.loss }, loss.replaceAll("_", " ")));
  const own = about.model ? [] : [
    input("Widths", "widths", "text", "64-16-10", { pattern: "\\d+(-\\d+)+", title: "Numbers with - between, as 64-16-10" }),
    h("label", { class: "field" }, h("span", {}, "Activation"), h("select", { name: "activation" }, ["relu", "tanh", "identity", "gelu"].map(one => h("option", {}, one)))),
    input("Epochs", "epochs", "number", 20, { min: 0, max: 1000 }), input("Seed", "seed", "number", 0, { min: 0 }), input("Samples", "samples", "number", 300, { min: 2 }),
  ];
  const button = h("button", { class: "primary", type: "submit" }, "Make the map");
  const form = h("form", { onsubmit: start }, h("div", { class: "fields" }, input("Name", "name", "text", `run${number}`, { required: true, pattern: "[\\w.\\-]+", title: "Letters, digits, '.', '-' and '_'" }),
    h("label", { class: "field" }, h("span", {}, "Loss"), h("select", { name: "loss" }, losses)), own, input("Seconds at most", "seconds", "number", 60, { min: 1 })), h("div", { class: "row" }, h("p", { class: "note" }, "It runs in its own process; you may close this page."), button));

  async function start(event) {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== "").map(([name, value]) => [name, ["epochs", "seed", "samples", "seconds"].includes(name) ? Number(value) : value]));
    await watched(told, button, "map", given, null, signal);
  }
  return h("details", { class: "card", open: !maps.some(map => !about.model || map.options?.model === about.model) }, h("summary", {}, h("strong", {}, about.model ? `New map of ${about.model}` : "New map")), form, told);
}
