// The frame: which screen an address shows, the theme, and how many jobs run.
import { get, sleep } from "./api.js";
import { fill, h, problem } from "./dom.js";
import { redrawAll } from "./figure.js";

const SCREENS = {
  predict: () => import("./predict.js"),
  maps: () => import("./maps.js"),
  training: () => import("./training.js"),
  compare: () => import("./compare.js"),
  studies: () => import("./studies.js"),
  papers: () => import("./papers.js"),
  function: () => import("./function.js"),
  jobs: () => import("./jobs.js"),
};
const root = document.getElementById("screen");
let leaving = new AbortController();

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [name, ...rest] = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  const screen = name ?? "predict";
  for (const link of document.querySelectorAll("#screens a, #jobs-link")) {
    const isCurrent = link.getAttribute("href") === `/${screen}`;
    if (isCurrent) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const bar = document.getElementById("screens"), current = bar.querySelector("[aria-current]");
  if (current) bar.scrollLeft = current.offsetLeft - bar.offsetLeft - bar.clientWidth / 3; // on a phone the bar is wider than the screen
  if (!(screen in SCREENS)) return fill(root, nowhere());
  root.setAttribute("aria-busy", "true");
  try {
    const module = await SCREENS[screen]();
    if (!signal.aborted) await module.show(root, { rest, query: new URLSearchParams(location.search), signal });
  } catch (error) {
    if (error.name !== "AbortError" && !signal.aborted) fill(root, rest.length ? [problem(error), h("p", {}, h("a", { href: `/${screen}` }, `Back to ${screen}`))] : problem(error));
  }
  if (!signal.aborted) root.removeAttribute("aria-busy");
}

function nowhere() {
  const links = Object.keys(SCREENS).map(name => h("li", {}, h("a", { href: `/${name}` }, name[0].toUpperCase() + name.slice(1))));
  return [h("h1", {}, "Page not found"), h("p", {}, h("code", {}, location.pathname), " is not an address of the explorer. Its pages:"), h("ul", {}, links)];
}

export function go(address) {
  history.pushState(null, "", address);
  scrollTo(0, 0);
  return show();
}

document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='/']");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.hasAttribute("download")) return;
  event.preventDefault();
  go(link.getAttribute("href")).then(() => root.focus({ preventScroll: true }));
});
addEventListener("popstate", show);

const dark = matchMedia("(prefers-color-scheme: dark)");
document.getElementById("theme").addEventListener("click", () => {
  const isDark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : dark.matches;
  document.documentElement.dataset.theme = isDark ? "light" : "dark";
  try { localStorage.setItem("hessmap-theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
  redrawAll();
});
dark.addEventListener("change", redrawAll);

async function watchJobs() {
  const link = document.getElementById("jobs-link");
  for (;;) {
    try {
      const { jobs } = await get("/api/jobs");
      const running = jobs.filter(job => job.status === "running" || job.status === "waiting").length;
      link.textContent = running ? `Jobs (${running})` : "Jobs";
      link.classList.toggle("busy", running > 0);
    } catch { link.textContent = "Jobs"; }
    await sleep(document.hidden ? 10000 : 3000);
  }
}

show();
watchJobs();
