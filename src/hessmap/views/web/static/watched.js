// A job that is started here, watched to its end, and whose result is drawn in its place.
import { get, post, sleep } from "./api.js";
import { fill, problem } from "./dom.js";
import { jobView } from "./job.js";

export async function watched(place, button, kind, body, drawn, signal) {
  button.disabled = true;
  try {
    let job = await post(`/api/jobs/${kind}`, body);
    while (job.status === "running" || job.status === "waiting") {
      if (!place.contains(document.activeElement)) fill(place, jobView(job));
      await sleep(400, signal);
      job = await get(`/api/jobs/${job.number}`, signal);
    }
    const shown = job.status === "done" && drawn ? await drawn(job.result, job) : null;
    fill(place, shown ?? jobView(job));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, problem(error));
  }
  button.disabled = false;
}
