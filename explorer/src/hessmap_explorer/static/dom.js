// Elements without a framework: h("p", {class: "note"}, "text", child).

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

export const fill = (element, ...children) => {
  element.replaceChildren(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
};

export const number = value => value.toLocaleString("en-US");

export const percent = share => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 2 : 1)} %`;

// Three digits, as the tables of hessmap write them.
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "object" && "float" in value) return value.float;
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e4 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

export const symbol = part => h("span", { class: `symbol ${part}` }, "H", h("sub", {}, { loss: "L", outer_product: "o", functional: "f" }[part]));

export function table(contents, options = {}) {
  const numeric = contents.is_number || [];
  const cell = (tag, text, place) => h(tag, { class: numeric[place] ? "number" : null, scope: tag === "th" ? "col" : null }, text);
  const rows = contents.lines.map((line, row) => h("tr", options.row ? options.row(line, row) : {}, line.map((text, place) => cell("td", text, place))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.label || "Table" },
    h("table", {}, h("thead", {}, h("tr", {}, contents.labels.map((text, place) => cell("th", text, place)))), h("tbody", {}, rows)));
}

export const rows = pairs => h("dl", { class: "facts" }, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

export const empty = (title, ...lines) => h("section", { class: "empty" }, h("h2", {}, title), lines.map(line => typeof line === "string" ? h("p", {}, line) : line));

export const problem = error => h("section", { class: "verdict fails", role: "alert" }, h("p", {}, error.message));

export const command = text => h("div", { class: "command" }, h("pre", {}, h("code", {}, text)), copyButton(text));

export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", class: "quiet", onclick: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  } }, label);
  return button;
}
