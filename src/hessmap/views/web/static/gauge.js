// The gauge of a certificate: measured errors, the sampled error, and the bound, on one scale up to guessing.
import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const s = (tag, attributes, text) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

export function gauge(certificate) {
  const marks = [["mean weights, on the samples", certificate.training_error, "--soft"], ["stochastic network, on the samples", certificate.sampled_error, "--outer_product"], ["mean weights, on test data", certificate.test_error, "--good"], ["stochastic network, on test data", certificate.stochastic_test_error, "--good"], ["the bound", certificate.bound, "--functional"]].filter(([, value]) => value !== null && value !== undefined);
  const end = Math.min(1, Math.max(0.1, Math.ceil(12 * certificate.bound) / 10)), left = 10, width = 480, height = 34 + 26 * marks.length;
  const x = value => left + width * Math.min(1, value / end);
  const picture = s("svg", { viewBox: `0 0 500 ${height + 18}`, role: "img", "aria-label": `Bound ${certificate.bound.toFixed(4)}: ${marks.map(([name, value]) => `${name} ${value.toFixed(4)}`).join(", ")}` });
  picture.append(s("rect", { x: left, y: 8, width, height: 10, rx: 5, style: "fill:var(--panel)" }), s("rect", { x: left, y: 8, width: Math.max(1, x(certificate.bound) - left), height: 10, rx: 5, style: "fill:var(--functional);opacity:.3" }));
  marks.forEach(([name, value, shade], place) => {
    const isRight = x(value) > left + width * 0.55, y = 40 + 26 * place;
    picture.append(s("line", { x1: x(value), x2: x(value), y1: 4, y2: y - 4, style: `stroke:var(${shade});stroke-width:2` }), s("text", { x: x(value) + (isRight ? -6 : 6), y, "text-anchor": isRight ? "end" : "start", style: "fill:var(--ink);font-size:12.5px" }, `${name} ${(100 * value).toFixed(2)} %`));
  });
  for (const part of [0, 0.5, 1]) picture.append(s("text", { x: left + part * width, y: height + 14, "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle", style: "fill:var(--soft);font-size:11px" }, `${Math.round(1000 * part * end) / 10} %`));
  return h("div", { class: "gauge" }, picture);
}
