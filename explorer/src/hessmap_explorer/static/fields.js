// The fields of a family as controls: chips for layers, sliders for numbers, made from their descriptions alone.
import { h, number } from "./dom.js";

const words = text => text.replaceAll("_", " ");

function slider(label, value, low, high, onInput) {
  return h("input", { type: "range", min: low, max: Math.max(high, value ?? 0), value: value ?? high, "aria-label": `${label}, slider`, oninput: event => onInput(Number(event.target.value)) });
}

function box(label, value, low, onInput, placeholder = "") {
  return h("input", { type: "number", min: low, step: 1, value: value ?? "", placeholder, "aria-label": label, inputmode: "numeric", oninput: event => onInput(event.target.value === "" ? null : Number(event.target.value)) });
}

// A number with its slider; both say the same. `change(value, name)` tells the new value and what was moved.
function pair(field, name, label, value, high, change, canBeGeneric) {
  const typed = box(label, value, field.low, moved, canBeGeneric ? field.generic : "");
  const drawn = slider(label, value, field.low, high, moved);
  drawn.classList.toggle("generic", value === null);
  function moved(chosen) {
    if (chosen === null && !canBeGeneric) return;
    typed.value = chosen ?? "";
    if (chosen !== null) { drawn.max = Math.max(Number(drawn.max), chosen); drawn.value = chosen; }
    drawn.classList.toggle("generic", chosen === null);
    change(chosen, name);
  }
  const limit = most => { if (Number(typed.value) <= most) { drawn.max = Math.max(most, field.low); if (typed.value === "") drawn.value = most; } };
  return { typed, drawn, limit, clear: () => moved(null) };
}

function counts(field, values, change, rebuild) {
  const list = [...values];
  const chips = list.map((value, place) => {
    const label = `${field.label} ${place + 1}`;
    const { typed, drawn } = pair(field, `${field.name}.${place}`, label, value, field.high, (chosen, name) => { list[place] = chosen; change([...list], name); });
    const isInner = !field.per_layer_of && list.length > 2 && place > 0 && place < list.length - 1;
    const remove = isInner && h("button", { type: "button", class: "remove", "aria-label": `Remove ${label}`, onclick: () => rebuild(list.filter((_, other) => other !== place)) }, "×");
    return h("li", { class: "chip" }, typed, remove, drawn);
  });
  const add = !field.per_layer_of && h("li", {}, h("button", { type: "button", class: "add", "aria-label": `Add to ${field.label}`, onclick: () => rebuild([...list.slice(0, -1), list[Math.max(0, list.length - 2)], list.at(-1)]) }, "+"));
  return h("fieldset", { class: "field wide" }, h("legend", {}, field.label), h("ol", { class: "chips" }, chips, add));
}

// One control. `change(value, moved)`; `rebuild(value)` where the number of controls changes; a count has `limit(most)`.
export function control(field, value, { change, rebuild }) {
  if (field.kind === "counts") return counts(field, value, change, rebuild);
  if (field.kind === "flag") {
    return h("label", { class: "field flag", title: field.help || null }, h("input", { type: "checkbox", checked: value, onchange: event => change(event.target.checked, null) }), field.label);
  }
  if (field.kind === "choice") {
    const options = field.choices.map(choice => h("option", { value: choice, selected: choice === value }, words(choice)));
    return h("label", { class: "field" }, h("span", {}, field.label), h("select", { onchange: event => change(event.target.value, null) }, options));
  }
  if (field.kind === "text") {
    return h("label", { class: "field", title: field.help || null }, h("span", {}, field.label), h("input", { type: "text", value, oninput: event => change(event.target.value, null) }));
  }
  const canBeGeneric = field.default === null;
  const { typed, drawn, limit, clear } = pair(field, field.name, field.label, value, field.high, change, canBeGeneric);
  const reset = canBeGeneric && h("button", { type: "button", class: "quiet", "aria-label": `${field.label}: ${field.generic}`, title: `Back to ${field.generic}`, onclick: clear }, "↺");
  const made = h("div", { class: "field", role: "group", "aria-label": field.label, title: field.help || null }, h("span", {}, field.label), h("div", { class: "pair" }, typed, reset), drawn);
  made.limit = limit;
  return made;
}

export const spelled = value => Array.isArray(value) ? value.join("-") : value === null || value === undefined ? "" : String(value);

export function read(field, text) {
  if (text === null || text === undefined) return Array.isArray(field.default) ? [...field.default] : field.default;
  if (field.kind === "counts") return text.split("-").map(Number);
  if (field.kind === "count") return text === "" ? null : Number(text);
  return field.kind === "flag" ? text === "true" : text;
}

export const many = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
