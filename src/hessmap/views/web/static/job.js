// One job: how far it is, a button that stops it, what came of it.
import { post } from "./api.js";
import { command, h, number } from "./dom.js";

export function jobView(job) {
  const { step, done, total, note } = job.progress;
  const isOn = job.status === "running" || job.status === "waiting";
  const bar = isOn && h("progress", { "aria-label": `Progress of ${job.title}`, ...(total ? { max: total, value: done || 0 } : {}) });
  const counted = total ? ` ${number(done || 0)} of ${number(total)}` : "";
  const stop = isOn && h("button", { type: "button", onclick: event => { event.target.disabled = true; post(`/api/jobs/${job.number}/stop`, {}).finally(() => { event.target.disabled = false; }); } }, job.is_stopping ? "End at once" : "Stop");
  return h("article", { class: "card job", "data-status": job.status, "data-number": job.number },
    h("div", { class: "row" }, h("h3", {}, job.title), h("span", { class: `badge ${job.status}` }, job.is_stopping && isOn ? "stopping" : job.status)), bar,
    h("div", { class: "row" }, h("p", { class: "note" }, isOn ? `${step || (job.status === "waiting" ? "Waits for another job" : "Starting")}${counted} ${note || ""}` : job.error || `${job.seconds} s`),
      stop, job.link ? h("a", { href: job.link }, "Open the result") : null), command(job.command));
}
