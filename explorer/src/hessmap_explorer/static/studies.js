// Studies: a gallery with search and filters; one of them is study.js.
import { get } from "./api.js";
import { empty, fill, h, number } from "./dom.js";
import { showStudy } from "./study.js";

export async function show(root, { rest, query, signal }) {
  if (rest.length === 2) return showStudy(root, rest.join("/"), query, signal);
  const { studies, papers } = await get("/api/studies", signal);
  const list = h("ul", { class: "gallery" }), count = h("p", { class: "note", "aria-live": "polite" });
  const options = (values, all) => [h("option", { value: "" }, all), ...values.map(([value, label]) => h("option", { value, selected: false }, label))];
  const unique = values => [...new Set(values)].sort().map(value => [value, value]);
  const filters = {
    words: h("input", { type: "search", placeholder: "Search questions", "aria-label": "Search questions", value: query.get("words") || "" }),
    paper: h("select", {}, options(papers.map(paper => [String(paper.number), paper.name]), "All papers")),
    outcome: h("select", {}, options(unique(studies.map(study => study.outcome)), "All outcomes")),
    data: h("select", {}, options(unique(studies.flatMap(study => study.data)), "All data")),
  };
  for (const [name, field] of Object.entries(filters)) {
    if (name !== "words") field.value = query.get(name) || "";
    field.addEventListener("input", draw);
  }
  function draw() {
    const { words, paper, outcome, data } = Object.fromEntries(Object.entries(filters).map(([name, field]) => [name, field.value]));
    const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = studies.filter(study => (!paper || study.papers.includes(Number(paper))) && (!outcome || study.outcome === outcome) && (!data || study.data.includes(data))
      && wanted.every(word => `${study.name} ${study.question} ${study.reference} ${study.verdict}`.toLowerCase().includes(word)));
    const state = new URLSearchParams(Object.entries({ words, paper, outcome, data }).filter(([, value]) => value));
    history.replaceState(null, "", `/studies${state.size ? `?${state}` : ""}`);
    count.textContent = `${shown.length} of ${studies.length} studies`;
    fill(list, shown.length ? shown.map(tile) : h("li", {}, empty("Nothing matches", "Remove a filter or a word.")));
  }
  fill(root, h("h1", {}, "Studies"), h("p", { class: "soft lead" }, "Each answers one question of a paper, case by case."),
    h("div", { class: "filters" }, h("label", { class: "grow" }, "Search", filters.words), h("label", {}, "Paper", filters.paper), h("label", {}, "Outcome", filters.outcome), h("label", {}, "Data", filters.data)), count, list);
  draw();
}

function tile(study) {
  const stored = study.stored ? `, ${number(study.stored)} in your store` : "";
  return h("li", {}, h("a", { class: "card tile", href: `/studies/${study.name}` }, h("div", { class: "row" }, h("span", { class: "note" }, study.name), h("span", { class: `badge ${study.outcome.replaceAll(" ", "-")}` }, study.outcome)),
    h("strong", {}, study.question), h("p", { class: "note" }, study.verdict || "Not run yet: open the study to run it."), h("p", { class: "note" }, `${study.reference}. ${number(study.num_cases)} records${stored}${study.data.length ? ` (${study.data.join(", ")})` : ""}`)));
}
