// A line across a spectrum that is dragged, or moved with the arrow keys: below it eigenvalues count as zero.
import { h } from "./dom.js";

const LOWEST = -18, HIGHEST = -0.05; // decimal logarithms of the relative tolerance

export function thresholdLine(tolerance, onMove) {
  let level = Math.log10(tolerance), place = null;
  const line = h("div", { class: "threshold", role: "slider", tabindex: "0", "aria-orientation": "vertical", "aria-label": "Threshold: eigenvalues below count as zero", "aria-valuemin": LOWEST, "aria-valuemax": HIGHEST });

  function put() {
    const axis = place?._fullLayout?.yaxis;
    line.setAttribute("aria-valuenow", level.toFixed(2));
    line.setAttribute("aria-valuetext", `10 to the ${level.toFixed(1)} of the norm`);
    line.dataset.label = `threshold ${(10 ** level).toExponential(1)}`;
    if (!axis) return;
    line.style.top = `${Math.min(axis._offset + axis._length, Math.max(axis._offset, axis._offset + axis.l2p(level)))}px`;
    line.style.left = `${place._fullLayout.xaxis._offset}px`;
  }
  function move(wanted) {
    level = Math.min(HIGHEST, Math.max(LOWEST, wanted));
    put();
    onMove(10 ** level);
  }
  line.addEventListener("pointerdown", event => {
    event.preventDefault();
    line.focus();
    line.setPointerCapture(event.pointerId);
  });
  line.addEventListener("pointermove", event => {
    if (!line.hasPointerCapture(event.pointerId)) return;
    const axis = place._fullLayout.yaxis;
    move(axis.p2l(event.clientY - place.getBoundingClientRect().top - axis._offset));
  });
  line.addEventListener("keydown", event => {
    const step = { ArrowUp: 0.25, ArrowDown: -0.25, PageUp: 2, PageDown: -2 }[event.key];
    if (step === undefined && event.key !== "Home") return;
    event.preventDefault();
    move(event.key === "Home" ? Math.log10(tolerance) : level + step);
  });
  line.attach = figure => {
    place = figure;
    place.on("plotly_afterplot", put);
    put();
  };
  return line;
}
