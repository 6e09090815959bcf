// A figure with its title, a note, and its downloads: SVG, PNG, CSV, and the Python lines that make it.
import { copyButton, h } from "./dom.js";
import { csv, draw, plotly } from "./figure.js";

function save(content, name, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

const fileName = figure => (figure.title || "figure").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "figure";

async function image(place, figure, format) {
  const Plotly = await plotly();
  const address = await Plotly.toImage(place, { format, width: 900, height: 560, scale: format === "png" ? 2 : 1 });
  h("a", { href: address, download: `${fileName(figure)}.${format}` }).click();
}

// `onClick` is given the keys of the point that was clicked; `height` is in rem.
export function figureCard(figure, { onClick, height = 20, heading = "h3", overlay } = {}) {
  const place = h("div", { class: "plot", style: `height:${height}rem`, role: "img", "aria-label": figure.title });
  const python = h("pre", { hidden: true }, h("code", {}, figure.python));
  const button = (label, action, title) => h("button", { type: "button", class: "quiet", onclick: action, title }, label);
  const shownPython = figure.python && button("Python", event => {
    python.hidden = !python.hidden;
    event.target.setAttribute("aria-expanded", String(!python.hidden));
  }, "The lines that make this figure");
  const card = h("figure", { class: "card figure" },
    h("figcaption", {}, h(heading, {}, figure.title),
      h("div", { class: "downloads", role: "group", "aria-label": `Downloads of ${figure.title}` },
        button("SVG", () => image(place, figure, "svg"), "Download as SVG"), button("PNG", () => image(place, figure, "png"), "Download as PNG"),
        button("CSV", () => save(csv(figure), `${fileName(figure)}.csv`, "text/csv"), "Download the numbers"), shownPython)),
    h("div", { class: "frame" }, place, overlay || null), figure.note ? h("p", { class: "note" }, figure.note) : null,
    figure.python ? h("div", { class: "command" }, python, h("span", { hidden: true }, copyButton(figure.python))) : null);
  card.drawn = whenSeen(place).then(() => draw(place, figure)).then(() => {
    card.dataset.drawn = "true";
    if (onClick) place.on("plotly_click", event => {
      const key = event.points.map(point => point.customdata).find(Boolean);
      if (key) onClick(key);
    });
    return place;
  });
  card.drawn.catch(error => place.replaceChildren(h("p", { class: "note", role: "alert" }, error.message)));
  card.redraw = changed => { figure = changed; return draw(place, changed); };
  return card;
}

// A study has up to thirty figures: each is drawn when it comes near.
function whenSeen(place) {
  return new Promise(resolve => {
    const watcher = new IntersectionObserver(entries => {
      if (entries.some(entry => entry.isIntersecting)) { watcher.disconnect(); resolve(); }
    }, { rootMargin: "400px" });
    watcher.observe(place);
  });
}
