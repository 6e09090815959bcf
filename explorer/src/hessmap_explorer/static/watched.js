// A job that is started here, watched to its end, and whose result is drawn in its place.
import { get, post, sleep } from "./api.js";
import { fill, problem } from "./dom.js";
import { isOn, jobCard } from "./job.js";

// `drawn(result, job)` gives what stands in the place of the job; without it the job stays, with the link to its result.
export async function watched(place, button, kind, body, drawn, signal) {
  button.disabled = true;
  try {
    let job = await post(`/api/jobs/${kind}`, body);
    const card = jobCard(job);
    fill(place, card);
    while (isOn(job)) {
      await sleep(400, signal);
      job = await get(`/api/jobs/${job.number}`, signal);
      card.update(job);
    }
    if (job.status === "done" && drawn) fill(place, await drawn(job.result, job));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, problem(error));
  }
  button.disabled = false;
}
