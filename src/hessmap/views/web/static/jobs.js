// Jobs: all of this server, newest first.
import { get, sleep } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { jobView } from "./job.js";

export async function show(root, { signal }) {
  const list = h("div", { "aria-live": "polite" });
  fill(root, h("h1", {}, "Jobs"), h("p", { class: "soft lead" }, "Each is a hessmap command in a process of its own. Stop interrupts it as Ctrl-C does: what is done is kept."), list);
  let shown = "";
  for (;;) {
    const { jobs } = await get("/api/jobs", signal);
    const text = JSON.stringify(jobs);
    if (text !== shown && !list.contains(document.activeElement)) {
      shown = text;
      fill(list, jobs.length ? jobs.reverse().map(jobView) : empty("No job yet", "Maps, studies, checks and certificates that you start appear here."));
    }
    root.removeAttribute("aria-busy");
    await sleep(800, signal);
  }
}
