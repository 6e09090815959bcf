// One study: the answer first, lines and points, a click on a point for its case, a run to start or continue.
import { get } from "./api.js";
import { command, fill, h, number, problem, table } from "./dom.js";
import { figureCard } from "./figure_card.js";
import { watched } from "./watched.js";

export async function showStudy(root, name, query, signal) {
  fill(root, h("p", { class: "soft row start" }, h("span", { class: "spinner" }), `Reading the records of ${name} …`));
  const data = query.get("data");
  const study = await get(`/api/studies/${name}${data ? `?data=${encodeURIComponent(data)}` : ""}`, signal);
  const dialog = h("dialog", { "aria-label": "Case" });
  const open = key => openCases(dialog, name, key.split("\n"), signal);
  const head = [h("p", { class: "soft" }, h("a", { href: "/studies" }, "Studies"), ` / ${name}`), h("h1", {}, study.question), h("p", { class: "soft lead" }, `${study.reference}.`)];
  const run = runSection(study, data, signal, () => showStudy(root, name, query, signal));
  if (!study.has_records) return fill(root, head, h("section", { class: "verdict open" }, h("p", {}, study.gap)), run);
  const choices = (data || study.data.length > 1) && h("p", { class: "pick" }, h("a", { class: "badge", href: `/studies/${name}`, "aria-current": data ? null : "true" }, "all data"),
    (data ? [data] : study.data).map(choice => h("a", { class: "badge", href: `/studies/${name}?data=${encodeURIComponent(choice)}`, "aria-current": choice === data ? "true" : null }, choice)));
  fill(root, head, h("section", { class: `verdict answer ${study.outcome}` }, h("p", {}, h("strong", {}, study.answer), ` ${study.verdict}`)), choices,
    study.findings.length ? h("details", { class: "card", open: study.findings.length < 6 }, h("summary", {}, "Claims"), h("ul", {}, study.findings.map(finding => h("li", {}, h("span", { class: `badge ${{ holds: "holds", "does not hold": "fails", inconclusive: "open" }[finding.outcome]}` }, finding.outcome), ` ${finding.claim}${finding.detail ? ` (${finding.detail})` : ""}`)))) : null,
    h("h2", {}, "Figures"), h("p", { class: "note" }, "Click a point for its case, its record and the command that repeats it."), h("div", { class: "two" }, study.figures.map(figure => figureCard(figure, { onClick: open }))),
    judgements(study, open), failures(study),
    h("h2", {}, "Records"), table(study.table, { label: "Records" }), study.hidden ? h("p", { class: "note" }, `${number(study.hidden)} more lines; hessmap study show ${name} --rows 0 prints all.`) : null,
    run, h("p", { class: "note" }, `${number(study.num_records)} records from ${study.source}. ${study.notes.join(" ")}`), dialog);
}

function judgements(study, open) {
  if (!study.judgements.length) return null;
  const contents = { labels: ["outcome", "quantity", "measured", "predicted", "case"], is_number: [false, false, true, true, false], lines: study.judgements.map(one => [one.outcome, one.name, one.measured, one.predicted, one.key]) };
  const openRow = place => open(study.judgements[place].key);
  return [h("h2", {}, "Cases that disagree or cannot be decided"), table(contents, { label: "Judgements", row: (line, place) => ({ tabindex: "0", onclick: () => openRow(place), onkeydown: event => { if (event.key === "Enter") openRow(place); } }) })];
}

const failures = study => study.failures.length ? [h("h2", {}, "Failed cases"), table({ labels: ["case", "error"], lines: study.failures.map(one => [one.case, one.error]) }, { label: "Failed cases" })] : null;

async function openCases(dialog, name, keys, signal) {
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const body = h("div", {}, h("p", { class: "soft" }, "Loading …"));
  fill(dialog, h("div", { class: "row" }, h("h2", {}, keys.length > 1 ? `${keys.length} cases behind this point` : "Case"), close), body);
  if (!dialog.open) dialog.showModal();
  const show = async key => {
    try {
      const found = await get(`/api/studies/${name}/case?key=${encodeURIComponent(key)}`, signal);
      const others = keys.length > 1 && h("label", { class: "field" }, h("span", {}, "Case"), h("select", { onchange: event => show(event.target.value) }, keys.map(one => h("option", { value: one, selected: one === key }, one))));
      fill(body, others, h("h3", {}, "Its fields"), table({ labels: Object.keys(found.case), lines: [Object.values(found.case).map(value => Array.isArray(value) ? value.join("-") : String(value))] }, { label: "Fields of the case" }),
        h("h3", {}, "The command that repeats it"), command(found.command), h("h3", {}, "Its record"), h("pre", { tabindex: "0" }, h("code", {}, JSON.stringify(found.record, null, 1).slice(0, 20000))));
    } catch (error) { if (error.name !== "AbortError") fill(body, problem(error)); }
  };
  await show(keys[0]);
}

function runSection(study, data, signal, onDone) {
  const { num_cases: cases, num_done: done, num_failed: failed, predicted_wall_seconds: wall, data: chosen, missing_data: missing } = study.description;
  const told = h("div", { "aria-live": "polite" });
  const left = Math.max(0, cases - done - failed);
  const isMissing = missing.includes(chosen);
  const time = wall < 120 ? `${Math.ceil(wall)} s` : wall < 7200 ? `${Math.round(wall / 60)} min` : `${(wall / 3600).toFixed(1)} h`;
  const text = isMissing ? `The data ${chosen} is not here; hessmap data lists where to download it.` : `${number(done)} of ${number(cases)} cases${chosen ? ` on ${chosen}` : ""} are in your store${failed ? `, ${number(failed)} failed` : ""}. All of them take about ${time}.`;
  const button = h("button", { type: "button", class: "primary", disabled: isMissing || (!left && !failed), onclick: start }, done ? "Continue the run" : "Run the study");
  function start() {
    return watched(told, button, "study", { study: study.name, ...(data ? { data } : {}), retry_failed: left === 0 && failed > 0 }, async () => { await onDone(); return null; }, signal);
  }
  return h("section", { class: "card", id: "run" }, h("div", { class: "row" }, h("div", {}, h("h3", {}, "Run it here"), h("p", { class: "note" }, text)), button), told, command(study.commands[0]));
}
