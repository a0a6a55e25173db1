// Draws the charts from the data in the page; loads nothing.

const DATA = JSON.parse(document.getElementById("data").textContent);
const METRICS = {
  return: "return",
  success: "success",
  length: "episode length",
  value_loss: "critic loss",
  policy_loss: "actor loss",
  entropy: "entropy",
  explained_variance: "explained variance",
};
const SHOWN = 12; // lines whose values a tooltip has
const AXES = { step: "steps", iteration: "epochs (rollouts)", time: "wall-clock time", episodes: "episodes" };
const BANDS = { iqm: "IQM, 95 % confidence interval", seeds: "mean, lowest to highest seed" };
const STATISTICS = {
  iqm: "interquartile mean (IQM) over seeds; the band is its 95 % confidence interval",
  seeds: "mean over seeds; the band is from the lowest to the highest seed",
};
const COLOURS = 7;
const DASHES = ["", "7 4", "2 4", "10 4 2 4"];

// The choices of the reader, common to all learning curves.
const view = { metric: "return", axis: "step", band: "iqm", smooth: 0, log: false, hidden: new Set() };
const redraws = [];

// Elements -----------------------------------------------------------------------------------

function colour(index) {
  return `var(--c${index % COLOURS})`;
}

function dash(index) {
  return DASHES[Math.floor(index / COLOURS) % DASHES.length];
}

// Numbers ------------------------------------------------------------------------------------

function short(x, kilo = 1e4) {
  if (x === null || x === undefined) return "-";
  const size = Math.abs(x);
  if (size >= 1e9) return `${trim(x / 1e9)}G`;
  if (size >= 1e6) return `${trim(x / 1e6)}M`;
  if (size >= kilo) return `${trim(x / 1e3)}k`;
  return size !== 0 && size < 1e-3 ? x.toExponential(1) : trim(x);
}

function trim(x) {
  return String(Number(x.toPrecision(4)));
}

// The label of a tick: a round number, so that 2k needs no digits that 2000 would have.
function tick(x) {
  return short(x, 1e3);
}

// Seconds in the unit of the whole axis.
function clock(seconds, whole) {
  const [unit, name] = whole > 7200 ? [3600, "h"] : whole > 180 ? [60, "min"] : [1, "s"];
  return `${trim(seconds / unit)} ${name}`;
}

function coordinate(x, whole) {
  if (view.axis !== "time") return tick(x);
  return view.log ? clock(x, 4 * x) : clock(x, whole); // on a logarithmic axis each in a unit of its own
}

// About `count` round numbers in a range.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) values.push(i * step);
  return values;
}

function wholeTicks(low, high, count) {
  return ticks(low, high, count).filter(Number.isInteger);
}

function clockTicks(low, high, count) {
  const unit = high > 7200 ? 3600 : high > 180 ? 60 : 1;
  return ticks(low / unit, high / unit, count).map((t) => t * unit);
}

function logTicks(low, high) {
  const values = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    const parts = Math.log10(high / low) > 2 ? [1] : [1, 2, 5];
    for (const part of parts) values.push(part * 10 ** p);
  }
  return values.filter((t) => t >= low * 0.999 && t <= high * 1.001);
}

// On a logarithmic axis each time has a unit of its own: 1 s, 10 s, 1 min, 10 min, 1 h.
function clockLogTicks(low, high) {
  const values = [1e-2, 0.1, 1, 10, 60, 600, 3600, 36000, 360000];
  const inside = values.filter((t) => t >= low * 0.999 && t <= high * 1.001);
  return inside.length > 1 ? inside : logTicks(low, high);
}

// Every k-th point of a grid, so that at most `fit` remain.
function thinned(grid, fit) {
  const every = Math.ceil(grid.length / fit);
  return grid.filter((_, i) => i % every === 0);
}

// Ticks with their labels, without those whose label would overlap the one before.
function labelled(values, x, format) {
  let end = -Infinity;
  return values.map((t) => [t, format(t)]).filter(([t, text]) => {
    const half = text.length * 3.5 + 3; // digits of 12 px are about 7 px wide
    const free = x(t) - half >= end;
    if (free) end = x(t) + half;
    return free;
  });
}

// Maps a range of numbers to a range of pixels.
function scale(low, high, from, to, log = false) {
  const at = log ? Math.log : (x) => x;
  const [a, b] = [at(low), at(high)];
  return (x) => from + ((at(x) - a) / (b - a || 1)) * (to - from);
}

// The mean of the points around each; null stays null.
function smoothed(values, reach) {
  if (!reach || !values) return values;
  return values.map((value, i) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, i - reach), i + reach + 1).filter((x) => x !== null);
    return near.reduce((sum, x) => sum + x, 0) / near.length;
  });
}

// Curves -------------------------------------------------------------------------------------

// The chosen values of a line, smoothed; null if the line does not have them.
function columns(line) {
  const curve = line.curves[view.metric]?.[view.axis];
  if (!curve) return null;
  const chosen = view.band === "iqm" && curve.iqm
    ? [curve.iqm, curve.iqm_low, curve.iqm_high]
    : [curve.mean, curve.low, curve.high];
  const [middle, low, high] = chosen.map((values) => smoothed(values, view.smooth));
  return { ...line, middle, low, high };
}

function drawCurves(figure, chart) {
  const box = figure.querySelector(".plot");
  const grid = chart.grids[view.axis];
  const lines = chart.lines.map(columns).filter((line) => line && !view.hidden.has(line.label));
  const yName = METRICS[view.metric];
  const smooth = view.smooth ? `; smoothed over ${view.smooth} points to each side` : "";
  figure.querySelector("figcaption small").textContent = STATISTICS[view.band] + smooth;
  if (!lines.length) return nothing(figure, `No visible line has ${yName} over ${AXES[view.axis]}.`);
  plot(figure, box, grid, lines, {
    yName,
    xName: AXES[view.axis],
    log: view.log,
    words: view.metric === "return" && view.axis === "step" && view.band === "iqm" ? chart.words : ends(lines, yName, chart.title),
    format: (x) => coordinate(x, grid[grid.length - 1]),
    ticks: view.axis === "time" ? clockTicks : ticks,
    logTicks: view.axis === "time" ? clockLogTicks : logTicks,
  });
}

function drawLines(figure, chart) {
  const lines = chart.lines.filter((line) => !view.hidden.has(line.label));
  if (!lines.length) return nothing(figure, "All lines are hidden.");
  plot(figure, figure.querySelector(".plot"), chart.grid, lines, {
    yName: chart.y,
    xName: chart.x,
    log: chart.log,
    steps: chart.steps,
    words: chart.words,
    format: tick,
    ticks: chart.grid.every(Number.isInteger) ? wholeTicks : ticks,
    marks: chart.log ? (fit) => thinned(chart.grid, fit) : null,
  });
}

// Replaces a chart that has no line to draw by a message.
function nothing(figure, words) {
  figure.querySelector(".plot").replaceChildren(element("p", { class: "empty" }, words));
  figure.querySelector(".tip").hidden = true;
  figure.querySelector("details .table")?.replaceChildren();
}

// The end of each curve in words, for screen readers.
function ends(lines, name, title) {
  const last = lines.map((line) => `${line.label} ${short(line.middle.filter((y) => y !== null).at(-1))}`);
  return `${name} in ${title}. At the end: ${last.join(", ")}.`;
}

// Lines with bands over a grid, with axes, a cursor, and a table of values.
function plot(figure, box, grid, lines, options) {
  const width = Math.max(280, box.clientWidth);
  const height = Math.round(Math.min(340, Math.max(220, width * 0.56)));
  const area = { left: 52, right: width - 18, top: 24, bottom: height - 40 };
  const shown = grid.map((x, i) => i).filter((i) => (!options.log || grid[i] > 0)
    && lines.some((line) => line.middle[i] !== null));
  const seen = lines.flatMap((line) => [line.middle, line.low, line.high].filter(Boolean)).flat();
  const known = seen.filter((y) => y !== null);
  let [low, high] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
  const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  [low, high] = [low - room, high + room];
  const [first, last] = [grid[shown[0]], grid[shown.at(-1)]];
  const x = scale(first, last, area.left, area.right, options.log);
  const y = scale(low, high, area.bottom, area.top);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": options.words,
  });
  const count = Math.max(3, Math.floor(width / 100));
  const fromRange = () => (options.log ? options.logTicks(first, last) : options.ticks(first, last, count));
  const xs = options.marks ? options.marks(width / 40) : fromRange();
  svg.append(...axes(area, x, y, xs, ticks(low, high, 5), options));
  const faint = lines.length > 4 ? 0.09 : 0.16; // more would merge many bands into one
  for (const line of lines) svg.append(...drawLine(line, grid, shown, x, y, faint, options.steps));
  box.replaceChildren(svg);
  follow(figure, svg, { grid, shown, lines, x, area, width, options });
  tabulate(figure, grid, shown, lines, options);
}

function axes(area, x, y, xs, ys, options) {
  const parts = [];
  for (const t of ys) {
    parts.push(shape("line", { class: "gridline", x1: area.left, x2: area.right, y1: y(t), y2: y(t) }));
    parts.push(shape("text", { x: area.left - 6, y: y(t) + 4, "text-anchor": "end" }, tick(t)));
  }
  for (const [t, text] of labelled(xs, x, options.format)) {
    parts.push(shape("line", { class: "axis", x1: x(t), x2: x(t), y1: area.bottom, y2: area.bottom + 4 }));
    parts.push(shape("text", { x: x(t), y: area.bottom + 17, "text-anchor": "middle" }, text));
  }
  parts.push(shape("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }));
  parts.push(shape("text", { x: 0, y: 12 }, options.yName));
  const foot = `${options.xName}${options.log ? " (log)" : ""}`;
  const middle = (area.left + area.right) / 2;
  parts.push(shape("text", { x: middle, y: area.bottom + 35, "text-anchor": "middle" }, foot));
  return parts;
}

// Points with a corner before each, where a value holds up to the next point; the last one has no width.
function stepped(points) {
  return points.flatMap((point, i) => (i ? [[point[0], points[i - 1][1]], ...(i < points.length - 1 ? [point] : [])] : [point]));
}

// The band and the line of one model; null values are skipped.
function drawLine(line, grid, shown, x, y, faint, steps) {
  const parts = [];
  const trace = (values, places) => {
    const points = places.map((i) => [x(grid[i]).toFixed(1), y(values[i]).toFixed(1)]);
    return steps ? stepped(points) : points;
  };
  const paint = colour(line.colour);
  const known = shown.filter((i) => line.middle[i] !== null);
  if (line.low) {
    const there = known.filter((i) => line.low[i] !== null);
    const edge = `M${[...trace(line.high, there), ...trace(line.low, there).reverse()].join("L")}Z`;
    if (there.length) parts.push(shape("path", { class: "band", d: edge, fill: paint, "fill-opacity": faint }));
  }
  if (line.dots) {
    for (const i of known) parts.push(shape("circle", { cx: x(grid[i]), cy: y(line.middle[i]), r: 4, fill: paint }));
    for (const part of parts) part.dataset.label = line.label;
    return parts;
  }
  const broken = ["unfinished", "random"].includes(line.kind) ? "2 4" : dash(line.colour);
  parts.push(shape("path", { class: "line", d: `M${trace(line.middle, known).join("L")}`, stroke: paint, "stroke-dasharray": broken }));
  for (const part of parts) part.dataset.label = line.label;
  return parts;
}

// The cursor, moved by mouse, touch or arrow keys, with the values at its position.
function follow(figure, svg, plotted) {
  const { grid, shown, lines, x, area, width, options } = plotted;
  const tip = figure.querySelector(".tip");
  const cursor = shape("line", { class: "cursor", y1: area.top, y2: area.bottom, visibility: "hidden" });
  svg.append(cursor);
  let place = shown.length - 1;
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  const show = (to) => {
    place = Math.max(0, Math.min(shown.length - 1, to));
    const i = shown[place];
    for (const side of ["x1", "x2"]) cursor.setAttribute(side, x(grid[i]));
    cursor.setAttribute("visibility", "visible");
    const values = lines.filter((line) => line.middle[i] !== null).sort((a, b) => b.middle[i] - a.middle[i]);
    tip.replaceChildren(
      element("b", {}, `${options.xName} ${options.format(grid[i])}`),
      ...values.slice(0, SHOWN).map((line) => reading(line, i)),
      ...(values.length > SHOWN ? [element("span", {}, `and ${values.length - SHOWN} more, below "Values"`)] : []),
    );
    tip.hidden = false;
    const at = (x(grid[i]) / width) * svg.clientWidth;
    const left = at > svg.clientWidth / 2 ? at - tip.offsetWidth - 12 : at + 12;
    tip.style.left = `${Math.max(0, Math.min(svg.clientWidth - tip.offsetWidth, left))}px`;
    tip.style.top = `${svg.parentNode.offsetTop + 8}px`;
  };
  pointed(svg, hide, (event) => {
    const at = (event.offsetX / svg.clientWidth) * width;
    const gaps = shown.map((i) => Math.abs(x(grid[i]) - at));
    show(gaps.indexOf(Math.min(...gaps)));
  });
  svg.addEventListener("focus", () => svg.matches(":focus-visible") && show(place));
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const by = event.shiftKey ? 10 : 1;
    const to = { ArrowLeft: place - by, ArrowRight: place + by, Home: 0, End: shown.length - 1 }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
}

// A mouse shows values while it moves over the chart; after a touch they stay visible.
function pointed(svg, hide, show) {
  for (const event of ["pointerdown", "pointermove"]) svg.addEventListener(event, show);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "touch" || hide());
}

function reading(line, i) {
  const swatch = element("i");
  swatch.style.background = colour(line.colour);
  const around = line.low && line.low[i] !== null ? ` (${short(line.low[i])} to ${short(line.high[i])})` : "";
  return element("span", {}, swatch, `${line.label} ${short(line.middle[i])}${around}`);
}

// The values as a table, built when it is opened.
function tabulate(figure, grid, shown, lines, options) {
  const details = figure.querySelector("details");
  const build = () => {
    if (!details.open) return;
    const places = [...new Set(Array.from({ length: 11 }, (_, k) => shown[Math.round((k / 10) * (shown.length - 1))]))];
    const head = element("tr", {}, ...[options.xName, ...lines.map((line) => line.label)].map((text) =>
      element("th", { scope: "col" }, text)));
    const rows = places.map((i) => element("tr", {}, element("th", { scope: "row" }, options.format(grid[i])),
      ...lines.map((line) => element("td", { class: "number" }, short(line.middle[i])))));
    const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
    details.querySelector(".table").replaceChildren(table);
  };
  details.ontoggle = build;
  build();
}

// Scores -------------------------------------------------------------------------------------

function drawDots(figure, chart) {
  const box = figure.querySelector(".plot");
  const values = chart.rows.flatMap((row) => [...row.dots, row.value, ...(row.interval ?? [])]);
  if (chart.zero) values.push(0);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
  [low, high] = [low - room, high + room];
  const list = element("div", { role: "img", "aria-label": chart.words });
  box.replaceChildren(list);
  const strip = (name, value) => {
    const cell = element("div", { class: "strip" });
    list.append(element("div", { class: "row" }, name, cell, value));
    const width = Math.max(160, cell.clientWidth);
    return [cell, scale(low, high, 8, width - 8), width];
  };
  for (const row of chart.rows) {
    const value = element("div", { class: "value" }, short(row.value));
    if (row.interval) value.append(element("small", {}, row.interval.map((end) => short(end)).join(" to ")));
    const [cell, x, width] = strip(element("div", { class: "name" }, row.label), value);
    cell.append(dots(row, x, width, chart.zero));
  }
  const [cell, x, width] = strip(element("div"), element("div"));
  const marks = labelled(ticks(low, high, Math.max(2, Math.floor(width / 90))), x, tick).flatMap(([t, text]) => [
    shape("line", { class: "axis", x1: x(t), x2: x(t), y1: 0, y2: 5 }),
    shape("text", { x: x(t), y: 18, "text-anchor": "middle" }, text),
  ]);
  const foot = shape("svg", { viewBox: `0 0 ${width} 22` });
  foot.append(shape("line", { class: "axis", x1: 0, x2: width, y1: 0, y2: 0 }), ...marks);
  cell.append(foot);
}

// The mean with its interval, and the seeds below it, where the mean does not hide them.
function dots(row, x, width, zero) {
  const paint = colour(row.colour);
  const [seeds, levels] = swarm(row.dots.map(x));
  const gap = Math.min(7, 28 / levels); // many equal seeds overlap instead of making the row tall
  const svg = shape("svg", { viewBox: `0 0 ${width} ${20 + gap * levels + (levels && 4)}` });
  svg.append(shape("line", { class: "gridline", x1: 0, x2: width, y1: 11, y2: 11 }));
  if (zero) svg.append(shape("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: 22 }));
  if (row.interval) {
    const [low, high] = row.interval;
    svg.append(shape("line", { class: "whisker", x1: x(low), x2: x(high), y1: 11, y2: 11, stroke: paint }));
  }
  const mark = row.hollow ? { class: "mark hollow", style: `stroke: ${paint}` } : { class: "mark", fill: paint };
  svg.append(shape("circle", { ...mark, cx: x(row.value), cy: 11, r: 6 }));
  for (const [cx, level] of seeds) svg.append(shape("circle", { class: "dot", cx, cy: 22 + gap * level, r: 3.5, fill: paint }));
  return svg;
}

// Places next to each other, or below each other where they would overlap: [place, level], and how many levels.
function swarm(places) {
  const ends = [];
  const seeds = places.toSorted((a, b) => a - b).map((place) => {
    const free = ends.findIndex((end) => place - end >= 6);
    const level = free < 0 ? ends.length : free;
    ends[level] = place;
    return [place, level];
  });
  return [seeds, ends.length];
}

// Parallel coordinates ------------------------------------------------------------------------------------

// Vertical axes side by side and a line across them for each item, selected by mouse, touch or arrow keys.
function drawParallel(figure, chart) {
  const box = figure.querySelector(".plot");
  const lines = chart.lines.filter((line) => !view.hidden.has(line.label));
  if (!lines.length) return nothing(figure, "All lines are hidden.");
  const width = Math.max(box.clientWidth, chart.axes.length * 60); // wide enough for the names; the chart scrolls if needed
  const area = { top: 34, bottom: 276 };
  const x = scale(0, chart.axes.length - 1, 42, width - 42);
  const y = scale(0, 1, area.bottom, area.top);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} 296`, style: `width:${width}px`, role: "img", tabindex: 0, "aria-label": chart.words,
  });
  const paths = lines.map((line) => parallelLine(line, x, y));
  svg.append(...paths, ...chart.axes.flatMap((axis, i) => parallelAxis(axis, x(i), y, i)));
  box.replaceChildren(svg);
  point(figure, svg, lines, paths, x, y);
}

function parallelLine(line, x, y) {
  const points = line.positions.flatMap((p, i) => (p === null ? [] : [`${x(i).toFixed(1)},${y(p).toFixed(1)}`]));
  return shape("path", {
    class: `parallel t${line.colour}`, d: `M${points.join("L")}`, stroke: colour(line.colour), "data-label": line.label,
  });
}

function parallelAxis(axis, x, y, i) {
  const high = i % 2 ? 12 : 24; // alternate, so that long names of neighbouring axes do not overlap
  return [
    shape("line", { class: "gridline", x1: x, x2: x, y1: y(0), y2: y(1) }),
    shape("text", { x, y: high, "text-anchor": "middle" }, axis.name),
    ...axis.ticks.map(([text, p]) => shape("text", { class: "halo", x: x + 5, y: y(p) + 4 }, text)),
  ];
}

function point(figure, svg, lines, paths, x, y) {
  const tip = figure.querySelector(".tip");
  let place = lines.length - 1;
  const hide = () => {
    tip.hidden = true;
    svg.classList.remove("pointed");
    for (const path of paths) path.classList.remove("here");
  };
  const show = (to) => {
    hide();
    place = Math.max(0, Math.min(lines.length - 1, to));
    svg.classList.add("pointed");
    paths[place].classList.add("here");
    tip.replaceChildren(
      element("b", {}, lines[place].name),
      ...lines[place].words.map((words) => element("span", {}, words)),
    );
    tip.hidden = false;
    tip.style.left = "0px";
    tip.style.top = `${svg.parentNode.offsetTop + svg.parentNode.offsetHeight + 4}px`;
  };
  const gap = (line, px, py) => Math.min(...line.positions.slice(1).map((p, i) => {
    const before = line.positions[i];
    if (p === null || before === null || px < x(i) || px > x(i + 1)) return Infinity;
    const part = (px - x(i)) / (x(i + 1) - x(i));
    return Math.abs(y(before) + (y(p) - y(before)) * part - py);
  }));
  pointed(svg, hide, (event) => {
    const gaps = lines.map((line) => gap(line, event.offsetX, event.offsetY));
    const least = Math.min(...gaps);
    if (least < 24) show(gaps.lastIndexOf(least));
  });
  svg.addEventListener("focus", () => svg.matches(":focus-visible") && show(place));
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: lines.length - 1 }[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
}

// The page -----------------------------------------------------------------------------------

const DRAW = { curves: drawCurves, lines: drawLines, dots: drawDots, parallel: drawParallel };

function legend(chart) {
  const labels = [...new Map(chart.lines.map((line) => [line.label, line])).values()];
  const buttons = labels.map((line) => {
    const sample = shape("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" });
    const broken = ["unfinished", "random"].includes(line.kind) ? "2 4" : dash(line.colour);
    sample.append(shape("line", {
      x1: 1, x2: 25, y1: 5, y2: 5, stroke: colour(line.colour), "stroke-width": 3, "stroke-dasharray": broken,
    }));
    const seeds = line.seeds === undefined || line.kind === "random" ? "" : ` (${line.seeds})`;
    const button = element("button", { type: "button", "aria-pressed": "true" }, sample, line.label + seeds);
    button.title = "show or hide";
    button.addEventListener("click", () => {
      if (!view.hidden.delete(line.label)) view.hidden.add(line.label);
      redraw();
    });
    const point = (opacity) => button.closest("figure").querySelectorAll("path[data-label]").forEach((path) => {
      path.style.opacity = path.dataset.label === line.label ? 1 : opacity;
    });
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => point(0.12));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => point(1));
    redraws.push(() => button.setAttribute("aria-pressed", String(!view.hidden.has(line.label))));
    return button;
  });
  return element("div", { class: "legend", role: "group", "aria-label": "Show or hide lines" }, ...buttons);
}

function build(figure) {
  const chart = DATA.charts[figure.dataset.chart];
  if (chart.kind === "curves") figure.querySelector("figcaption").append(element("small", {}));
  if (chart.lines) {
    const table = element("div", { class: "table", tabindex: 0 });
    figure.append(legend(chart), element("div", { class: "plot" }));
    if (chart.grid || chart.grids) figure.append(element("details", {}, element("summary", {}, "Values"), table));
  } else {
    figure.append(element("div", { class: "plot" }));
  }
  const tip = element("div", { class: "tip", role: "status" });
  tip.hidden = true;
  figure.append(tip);
  const draw = () => DRAW[chart.kind](figure, chart);
  redraws.push(draw);
  let width = 0;
  new ResizeObserver(() => {
    if (figure.clientWidth === width) return;
    width = figure.clientWidth;
    draw();
  }).observe(figure);
}

function redraw() {
  for (const draw of redraws) draw();
}

function choice(name, options, key) {
  const select = element("select", {}, ...Object.entries(options).map(([value, text]) =>
    element("option", { value }, text)));
  select.addEventListener("change", () => {
    view[key] = select.value;
    redraw();
  });
  return element("label", {}, name, select);
}

// The bar above the curves; it offers only metrics that some run has.
function controls() {
  const lines = Object.values(DATA.charts).filter((chart) => chart.kind === "curves").flatMap((chart) => chart.lines);
  const known = Object.entries(METRICS).filter(([key]) => lines.some((line) => line.curves[key]));
  if (known.length) [[view.metric]] = known;
  const log = element("input", { type: "checkbox" });
  log.addEventListener("change", () => {
    view.log = log.checked;
    redraw();
  });
  const smooth = element("input", { type: "range", min: 0, max: 10, value: 0 });
  smooth.addEventListener("input", () => {
    view.smooth = Number(smooth.value);
    redraw();
  });
  return element(
    "div",
    { class: "controls", role: "group", "aria-label": "Options of the learning curves" },
    choice("metric", Object.fromEntries(known), "metric"),
    choice("x axis", AXES, "axis"),
    choice("band", BANDS, "band"),
    element("label", {}, "smoothing", smooth),
    element("label", {}, log, "log x"),
  );
}

// A table or a chart that is wider than the page says that it scrolls.
const widths = new ResizeObserver((entries) => entries.forEach(({ target }) =>
  target.classList.toggle("wide", target.scrollWidth > target.clientWidth)));
document.querySelectorAll(".table").forEach((table) => widths.observe(table));

const first = document.querySelector('figure[data-kind="curves"]');
first?.parentNode.before(controls());
document.querySelectorAll("figure[data-chart]").forEach(build);
document.querySelectorAll("[data-kind=parallel] .plot").forEach((plot) => widths.observe(plot));
redraw();
document.documentElement.dataset.drawn = String(Math.round(performance.now()));
