// Training: stored tracks, one or several in the same figures, and as they grow.
import { get, sleep } from "./api.js";
import { command, empty, fill, h, number, problem, table } from "./dom.js";
import { figureCard } from "./figure_card.js";

export async function show(root, { query, signal }) {
  const chosen = new Set(query.getAll("name"));
  const picked = h("fieldset", { class: "pick card" }), broken = h("div", {}), drawn = h("div", {}), live = h("span", { class: "live", "aria-live": "polite" });
  fill(root, h("h1", {}, "Training"), h("p", { class: "soft lead" }, "Curvature along trainings, also while they run. ", live), broken, picked, drawn);
  let cards = [], shown = "", listed = "";
  for (;;) {
    const { tracks, refused } = await get("/api/tracks", signal);
    fill(broken, refused.map(message => problem({ message })));
    if (!tracks.length) {
      fill(picked);
      picked.hidden = true;
      fill(drawn, empty("No track is stored yet", "A tracker in a training loop writes one, and it appears here as it grows:", command('tracker = hessmap.Tracker(model, "cross_entropy", data, name="run1")\ntracker(step)  # after every step')));
    } else {
      picked.hidden = false;
      if (!chosen.size) chosen.add(tracks[0].name);
      const names = tracks.map(track => track.name).join("\n");
      if (names !== listed) { listed = names; drawPick(tracks); }
      await drawTracks(tracks);
    }
    root.removeAttribute("aria-busy");
    await sleep(1000, signal);
  }

  function drawPick(tracks) {
    fill(picked, h("legend", { class: "note" }, "Tracks"), tracks.map(track => h("label", { class: "family" }, h("input", { type: "checkbox", value: track.name, checked: chosen.has(track.name), onchange: event => { event.target.checked ? chosen.add(track.name) : chosen.delete(track.name); if (!chosen.size) { chosen.add(track.name); event.target.checked = true; } drawTracks(tracks); } }), h("span", {}, track.name))));
  }

  async function drawTracks(tracks) {
    const state = JSON.stringify([[...chosen], tracks.filter(track => chosen.has(track.name)).map(track => [track.num_points, track.last_step, track.seconds])]);
    if (state === shown) return;
    const isFirst = !shown || JSON.parse(shown)[0].join() !== [...chosen].join();
    shown = state;
    const asked = new URLSearchParams([...chosen].map(name => ["name", name]));
    history.replaceState(null, "", `/training?${asked}`);
    const found = await get(`/api/tracks/shown?${asked}`, signal);
    if (!isFirst) live.textContent = `Updated: ${found.tracks.map(track => `${track.name} has ${number(track.num_points)} points`).join(", ")}`;
    if (!isFirst && cards.length === found.figures.length) {
      for (const [place, figure] of found.figures.entries()) cards[place].drawn.then(() => cards[place].redraw(figure), () => {});
      fill(drawn.querySelector(".told"), tellings(found));
      return;
    }
    cards = found.figures.map(figure => figureCard(figure));
    fill(drawn, h("div", { class: "two" }, cards), h("div", { class: "told" }, tellings(found)));
  }

  function tellings(found) {
    return found.tracks.map(track => h("section", {}, h("h2", {}, track.name), h("p", { class: "note points" }, `${track.network}: ${number(track.num_points)} points. ${track.facts}.`),
    h("section", { class: "verdict plain" }, track.summary.map(verdict => h("p", {}, verdict))), h("details", {}, h("summary", {}, "Points"), table(track.points, { label: `Points of ${track.name}` })), command(track.command)));
  }
}
