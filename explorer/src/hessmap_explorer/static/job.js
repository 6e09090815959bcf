// One job: how far it is, a button that stops it, what came of it. The same elements follow it to its end.
import { post } from "./api.js";
import { command, fill, h, number } from "./dom.js";

export const isOn = job => job.status === "running" || job.status === "waiting";

function stepText(job) {
  if (!isOn(job)) return job.error || (job.status === "done" ? `Took ${job.seconds} s.` : `Ended after ${job.seconds} s; finished work is kept.`);
  const { step, done, total, note } = job.progress;
  const counted = total ? `, ${number(done || 0)} of ${number(total)}` : "";
  return `${step || (job.status === "waiting" ? "Waits for another job" : "Starting")}${counted}${note ? `, ${note}` : ""} (${Math.round(job.seconds)} s)`;
}

export function jobCard(first) {
  const badge = h("span", {}), text = h("p", { class: "note" }), bar = h("progress", { "aria-label": `Progress of ${first.title}` }), result = h("span", {});
  const stop = h("button", { type: "button", onclick: () => { stop.disabled = true; post(`/api/jobs/${first.number}/stop`, {}).then(card.update, () => {}).finally(() => { stop.disabled = false; }); } });
  const card = h("article", { class: "card job", "data-number": first.number }, h("div", { class: "row" }, h("h3", {}, first.title), badge), bar, h("div", { class: "row" }, text, stop, result), command(first.command));
  card.update = job => {
    card.dataset.status = job.status;
    badge.className = `badge ${job.status}`;
    badge.textContent = job.is_stopping && isOn(job) ? "stopping" : job.status;
    text.textContent = stepText(job);
    if (job.progress.total) { bar.max = job.progress.total; bar.value = job.progress.done || 0; } else bar.removeAttribute("value");
    stop.textContent = job.is_stopping ? "End at once" : "Stop";
    stop.hidden = bar.hidden = !isOn(job);
    if (job.link && !result.hasChildNodes()) fill(result, h("a", { href: job.link }, "Open the result"));
  };
  card.update(first);
  return card;
}
