// Jobs: all of this server, newest first.
import { get, sleep } from "./api.js";
import { empty, fill, h } from "./dom.js";
import { jobCard } from "./job.js";

export async function show(root, { signal }) {
  const list = h("div", { "aria-live": "polite" }), cards = new Map();
  fill(root, h("h1", {}, "Jobs"), h("p", { class: "soft lead" }, "Each is a hessmap command in its own process. Stop sends Ctrl-C: finished work is kept."), list);
  for (;;) {
    const { jobs } = await get("/api/jobs", signal);
    if (!jobs.length) fill(list, empty("No job yet", "Maps, studies, checks and certificates appear here once you start them, for example on the page Maps."));
    else if (!cards.size) fill(list);
    for (const job of jobs) {
      if (cards.has(job.number)) cards.get(job.number).update(job);
      else { cards.set(job.number, jobCard(job)); list.prepend(cards.get(job.number)); }
    }
    root.removeAttribute("aria-busy");
    await sleep(800, signal);
  }
}
