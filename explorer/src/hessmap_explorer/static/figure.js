// A figure of hessmap, as data, drawn by Plotly in the colours of the page. No imports: a page that is sent holds it whole.

const css = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const NAMES = { ink: "ink", faint: "soft", pale: "pale", loss: "loss", outer_product: "outer_product", functional: "functional" };
const colour = name => css(NAMES[name] || name) || css("blue");

function faded(shade, opacity) {
  const digits = shade.replace("#", "");
  if (digits.length !== 6) return shade;
  const [red, green, blue] = [0, 2, 4].map(place => parseInt(digits.slice(place, place + 2), 16));
  return `rgba(${red},${green},${blue},${opacity})`;
}

const valuesOn = (figure, axis) => figure.traces.flatMap(trace => trace[axis]).filter(value => typeof value === "number");

// A scale that is linear around zero and logarithmic beyond: Plotly has none.
const symlog = (value, edge) => value === null ? null : Math.abs(value) <= edge ? value / edge : Math.sign(value) * (1 + Math.log10(Math.abs(value) / edge));

function symlogEdge(figure, axis) {
  if (figure[axis].edge > 0) return figure[axis].edge;
  const values = valuesOn(figure, axis).filter(value => value !== 0).map(Math.abs);
  return values.length ? Math.max(extreme(values, Math.min), 1e-16 * extreme(values, Math.max)) : 1;
}

function symlogTicks(figure, axis, edge) {
  const values = valuesOn(figure, axis);
  const lowest = extreme(values, Math.min), highest = extreme(values, Math.max), largest = Math.max(Math.abs(lowest), Math.abs(highest), edge), decades = Math.ceil(Math.log10(largest / edge));
  const every = Math.max(1, Math.ceil(decades / 4)), at = [0];
  for (let decade = 0; decade <= decades; decade += every) at.push(edge * 10 ** decade, -edge * 10 ** decade);
  const used = at.filter(value => (value >= 0 || lowest < 0) && (value <= 0 || highest > 0));
  return { tickvals: used.map(value => symlog(value, edge)), ticktext: used.map(value => value === 0 ? "0" : value.toExponential(0)) };
}

const PALETTES = { sequential: "Viridis", diverging: "RdBu", grey: [[0, "#ffffff"], [1, "#111111"]] };

function heatmap(trace) {
  const isClasses = trace.palette === "classes";
  const most = isClasses ? Math.max(...trace.z.flat()) : 0;
  const shades = Array.from({ length: most + 1 }, (_, place) => faded(css(`series${place % 8}`), 0.35));
  const steps = shades.flatMap((shade, place) => [[place / (most + 1), shade], [(place + 1) / (most + 1), shade]]);
  return {
    type: "heatmap", z: trace.z, x: trace.x.length ? trace.x : undefined, y: trace.y.length ? trace.y : undefined,
    zmin: isClasses ? -0.5 : trace.low[0], zmax: isClasses ? most + 0.5 : trace.high[0], hoverongaps: false,
    colorscale: isClasses ? steps : PALETTES[trace.palette], reversescale: false, showscale: !["grey", "classes"].includes(trace.palette),
    colorbar: { thickness: 12, outlinewidth: 0, tickfont: { color: css("soft") } }, customdata: keyed(trace), name: trace.label,
    hovertemplate: "%{x}, %{y}: %{z:.4~g}<extra></extra>",
  };
}

const keyed = trace => trace.keys.length === 1 && trace.kind === "heatmap" ? trace.z.map(row => row.map(() => trace.keys[0]))
  : trace.keys.length === 1 ? trace.x.map(() => trace.keys[0]) : trace.keys.length ? trace.keys : undefined;

// A polygon for each stretch without a gap: a fill between two lines would cross the gaps.
function band(trace, shade) {
  const stretches = [[]];
  trace.x.forEach((_, place) => {
    if (trace.low[place] === null || trace.high[place] === null) stretches.push([]); else stretches.at(-1).push(place);
  });
  return stretches.filter(places => places.length > 1).map(places => {
    const back = [...places].reverse();
    return { type: "scatter", mode: "lines", line: { width: 0, color: shade }, hoverinfo: "skip", showlegend: false, legendgroup: trace.label, fill: "toself", fillcolor: faded(shade, 0.18),
      x: [...places, ...back].map(place => trace.x[place]), y: [...places.map(place => trace.low[place]), ...back.map(place => trace.high[place])] };
  });
}

function traces(figure) {
  const isMany = figure.traces.filter(trace => trace.label && trace.in_legend).length > 1;
  const seen = new Set();
  return figure.traces.flatMap(trace => {
    if (trace.kind === "heatmap") return [heatmap(trace)];
    const shade = colour(trace.colour), name = trace.label, group = `${name} ${trace.colour}`;
    const showlegend = Boolean(isMany && name && trace.in_legend && !seen.has(group));
    if (trace.in_legend) seen.add(group);
    const base = { x: trace.x, y: trace.y, name, legendgroup: group, showlegend, opacity: trace.opacity, customdata: keyed(trace), connectgaps: false };
    if (trace.kind === "bars") {
      const error_x = trace.low.length ? { array: trace.high.map((high, place) => high - trace.x[place]), color: shade, thickness: 1 } : undefined;
      return [{ ...base, type: "bar", orientation: "h", marker: { color: shade }, error_x, hovertemplate: "%{y}: %{x:.4~g}<extra>%{fullData.name}</extra>" }];
    }
    const many = trace.x.length > 200;
    const line = { color: shade, width: trace.kind === "segments" ? 0.8 : 1.8, dash: trace.kind === "dashed" ? "dash" : "solid", shape: trace.kind === "steps" ? "hv" : "linear" };
    const mode = { points: "markers", rug: "markers", both: "lines+markers" }[trace.kind] || "lines";
    const marker = { color: shade, size: trace.kind === "both" ? 5 : many ? 4 : 7, symbol: trace.kind === "points" && !many ? "circle-open" : "circle", line: { width: 1.5, color: shade } };
    if (trace.kind === "rug") Object.assign(marker, { size: 9, symbol: "line-ns-open" });
    if (trace.marker) Object.assign(marker, { size: 8, symbol: `triangle-${trace.marker}` });
    const drawn = { ...base, type: "scatter", mode, line, marker, cliponaxis: trace.kind !== "rug", hovertemplate: `%{x}: %{y:.6~g}<extra>${name ? "%{fullData.name}" : ""}</extra>` };
    if (trace.kind === "steps") Object.assign(drawn, { fill: "tozeroy", fillcolor: faded(shade, 0.35), line: { ...line, width: 1 } });
    return trace.low.length ? [...band(trace, shade), drawn] : [drawn];
  });
}

function limits(axis) {
  if (!axis.limits) return {};
  const [low, high] = axis.limits.map(limit => limit === null ? null : axis.scale === "log" ? Math.log10(limit) : limit);
  return low === null && high === null ? {} : { range: [low, high], autorange: low === null ? "min" : high === null ? "max" : false };
}

const extreme = (values, pick) => values.reduce((one, other) => pick(one, other), values[0]);
const extent = (values, limits) => [limits?.[0] ?? extreme(values, Math.min), limits?.[1] ?? extreme(values, Math.max)];

// The number of ticks with which Plotly takes powers of ten over many decades, and 1, 2, 5, written out, over a few.
function logTicks(values, limits) {
  const [low, high] = extent(values.filter(value => value > 0), limits), decades = Math.log10(high / low);
  if (!(decades > 0)) return { type: "log" };
  return decades < 2.2 ? { type: "log", nticks: Math.ceil(decades / 0.4), tickformat: "~g" } : { type: "log", nticks: Math.min(8, Math.floor(decades / 0.75)) };
}

function plotlyAxis(axis, values) {
  const common = {
    title: { text: axis.label, font: { size: 12, color: css("soft") }, standoff: 8 }, tickfont: { size: 11, color: css("soft") }, automargin: true,
    gridcolor: css("rule"), zerolinecolor: css("rule"), linecolor: css("rule"), exponentformat: "power", showspikes: false,
  };
  if (axis.names.length && typeof axis.names[0] === "string" && axis.is_reversed) return { ...common, type: "category", autorange: "reversed" };
  if (axis.names.length) {
    const places = axis.names.map((_, place) => place), every = Math.ceil(places.length / 12);
    return { ...common, tickvals: places.filter(place => place % every === 0), ticktext: axis.names.filter((_, place) => place % every === 0), zeroline: false };
  }
  return { ...common, nticks: 8, ...(axis.is_share ? { tickformat: ".0%" } : {}), ...(axis.scale === "log" ? logTicks(values, axis.limits) : {}), ...limits(axis), ...(axis.is_reversed ? { autorange: "reversed" } : {}) };
}

// The row of each label: labels of vertical lines that are near each other go below one another.
function labelRows(lines, distance) {
  const last = [];
  return lines.map(line => {
    if (!line.label || line.axis !== "x" || line.end !== null) return 0;
    let row = 0;
    while (last[row]?.some(at => Math.abs(at - line.at) < distance)) row += 1;
    (last[row] ??= []).push(line.at);
    return row;
  });
}

function shapes(figure) {
  const [left, right] = extent(valuesOn(figure, "x"), figure.x.limits);
  const isFarRight = at => at > left + 0.7 * (right - left); // there a label stands before its line
  const rows = labelRows(figure.lines, 0.22 * (right - left));
  return figure.lines.map((line, place) => {
    if (line.end !== null) return { type: "rect", xref: "x", yref: "paper", x0: line.at, x1: line.end, y0: 0, y1: 1, fillcolor: css("panel"), line: { width: 0 }, layer: "below" };
    const isX = line.axis === "x", style = { color: colour(line.colour), width: 1.2, dash: "dot" };
    const label = { text: line.label, textposition: isX ? "end" : "start", font: { size: 11, color: colour(line.colour) }, textangle: 0, xanchor: isX && isFarRight(line.at) ? "right" : "left", yanchor: isX ? "top" : "bottom", padding: 4 + 15 * rows[place] };
    const ends = isX ? { xref: "x", yref: "paper", x0: line.at, x1: line.at, y0: 0, y1: 1 } : { xref: "paper", yref: "y", x0: 0, x1: 1, y0: line.at, y1: line.at };
    return { type: "line", ...ends, line: style, label: line.label ? label : undefined };
  });
}

function layout(figure) {
  const hasWords = figure.traces.some(trace => trace.kind !== "heatmap" && trace.kind !== "bars" && trace.x.some(value => typeof value === "string"));
  const made = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "system-ui, sans-serif", size: 12, color: css("ink") },
    margin: { l: 56, r: 12, t: 12, b: 44 }, barmode: "group", bargap: 0.35, hovermode: "closest", dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    hoverlabel: { bgcolor: css("panel"), bordercolor: css("rule"), font: { color: css("ink") } },
    xaxis: hasWords ? { ...plotlyAxis({ ...figure.x, names: [] }, []), type: "category" } : plotlyAxis(figure.x, valuesOn(figure, "x")), yaxis: plotlyAxis(figure.y, valuesOn(figure, "y")), shapes: shapes(figure),
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11, color: css("ink") }, bgcolor: "rgba(0,0,0,0)" },
  };
  if (figure.is_square) Object.assign(made.yaxis, { scaleanchor: "x", constrain: "domain" });
  return made;
}

// Plotly knows no symlog: values are moved, ticks keep their names.
function withSymlog(figure, drawn, made) {
  for (const axis of ["x", "y"]) {
    if (figure[axis].scale !== "symlog") continue;
    const edge = symlogEdge(figure, axis);
    for (const trace of drawn) trace[axis] = trace[axis].map(value => typeof value === "number" ? symlog(value, edge) : value);
    Object.assign(made[`${axis}axis`], symlogTicks(figure, axis, edge), { autorange: true });
  }
  return [drawn, made];
}

let loading = null;
export function plotly() {
  if (globalThis.Plotly) return Promise.resolve(globalThis.Plotly);
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/vendor/plotly-cartesian.min.js";
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => reject(new Error("The figures must be loaded from the explorer; it does not answer."));
    document.head.append(script);
  });
  return loading;
}

const drawnIn = new Map();

export async function draw(place, figure) {
  const Plotly = await plotly();
  const [drawn, made] = withSymlog(figure, traces(figure), layout(figure));
  drawnIn.set(place, figure);
  await Plotly.react(place, drawn, made, { displayModeBar: false, responsive: true, doubleClick: "reset+autosize" });
  return place;
}

export function redrawAll() {
  for (const [place, figure] of drawnIn) {
    if (place.isConnected) draw(place, figure); else drawnIn.delete(place);
  }
}

// What a figure shows, a line for each point; texts are quoted, and none can be read as a formula.
export function csv(figure) {
  const quoted = value => value === null || value === undefined ? "" : typeof value === "number" ? String(value) : `"${String(value).replace(/^(?=[=+@-])/, "'").replaceAll('"', '""')}"`;
  const lines = [["series", figure.x.label || "x", figure.y.label || "y", "low", "high", "case"].map(quoted).join(",")];
  for (const trace of figure.traces) {
    if (trace.kind === "heatmap") {
      trace.z.forEach((row, place) => row.forEach((value, column) => lines.push([trace.label, trace.x[column] ?? column + 1, trace.y[place] ?? place + 1, null, value, null].map(quoted).join(","))));
      continue;
    }
    trace.x.forEach((x, place) => lines.push([trace.label, x, trace.y[place], trace.low[place], trace.high[place], (trace.keys.length === 1 ? trace.keys[0] : trace.keys[place] ?? "").split("\n")[0]].map(quoted).join(",")));
  }
  return lines.join("\n") + "\n";
}
