// Papers: the question of each and its answer, then every item with its claim, status and studies.
import { get } from "./api.js";
import { empty, fill, h } from "./dom.js";

export async function show(root, { query, signal }) {
  const { papers, items, statuses } = await get("/api/papers", signal);
  const list = h("div", { class: "items" }), count = h("p", { class: "note", "aria-live": "polite" });
  const select = (name, choices) => h("label", {}, name[0].toUpperCase() + name.slice(1), h("select", { name }, h("option", { value: "" }, "All"), choices.map(([value, label]) => h("option", { value }, label))));
  const form = h("form", { class: "filters", oninput: draw, onsubmit: event => event.preventDefault() }, h("label", { class: "grow" }, "Search", h("input", { type: "search", name: "words", placeholder: "Words in item, claim or evidence", value: query.get("words") || "" })),
    select("paper", papers.map(paper => [paper.number, paper.name])), select("status", Object.keys(statuses).map(status => [status, status])), select("kind", [...new Set(items.map(item => item.kind))].sort().map(kind => [kind, kind])));
  for (const name of ["paper", "status", "kind"]) form.elements[name].value = query.get(name) || "";
  function draw() {
    const chosen = Object.fromEntries(new FormData(form));
    const wanted = chosen.words.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = items.filter(item => (chosen.paper === "" || item.paper === Number(chosen.paper)) && (!chosen.status || item.status === chosen.status) && (!chosen.kind || item.kind === chosen.kind) && wanted.every(word => `${item.item} ${item.claim} ${item.evidence}`.toLowerCase().includes(word)));
    const state = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
    history.replaceState(null, "", `/papers${state.size ? `?${state}` : ""}`);
    count.textContent = `${shown.length} of ${items.length} items`;
    fill(list, shown.length ? shown.map(entry) : empty("Nothing matches", "Remove a filter or a word."));
  }
  const entry = item => h("details", { class: "item" }, h("summary", {}, h("span", { class: `badge ${item.status.replaceAll(" ", "-")}`, title: statuses[item.status] }, item.status), h("strong", {}, ` ${item.item} `), h("span", { class: "soft" }, papers[item.paper].name), h("br"), item.claim),
    item.evidence ? h("p", {}, item.evidence) : null, ...(item.numbers || []).map(([name, published, ours]) => h("p", {}, `${name}: ${published ? `paper ${published}, ` : ""}ours ${ours}`)), item.left ? h("p", {}, `Not run yet: ${item.left}`) : null,
    item.studies.length ? h("p", { class: "pick" }, item.studies.map(study => h("a", { class: "badge", href: `/studies/${study}` }, study))) : null, item.functions.length ? h("p", { class: "note" }, item.functions.map(one => h("code", {}, `${one} `))) : null);
  fill(root, h("h1", {}, "Papers"), h("p", { class: "soft lead" }, "The question of each paper and its answer here; below, every item with its claim, status and evidence."),
    h("div", { class: "gallery" }, papers.map(paper => h("article", { class: "card tile" }, h("strong", {}, paper.name), h("span", { class: "soft" }, paper.title), h("p", { class: "question" }, h("strong", {}, paper.question)), h("p", {}, paper.answer), h("p", { class: "pick" }, Object.entries(paper.counts).map(([status, found]) => h("span", { class: `badge ${status.replaceAll(" ", "-")}` }, `${found} ${status}`)))))),
    form, count, list);
  draw();
}
