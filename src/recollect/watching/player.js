// Plays episodes from the data in the page. Nothing is loaded from anywhere.

const DATA = JSON.parse(document.getElementById("data").textContent);
const THUMBS = 6;
const at = { episode: 0, step: 0, playing: false };
const layerOf = {}, orderOf = {}, showOf = {};

// Elements and numbers -----------------------------------------------------------------------

function $(id) {
  return document.getElementById(id);
}

function number(x) {
  if (x === null || x === undefined) return "-";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return x.toExponential(2);
  return String(Number(x.toPrecision(4)));
}

function signedNumber(x) {
  return `${x < 0 ? "\u2212" : "+"}${number(Number(Math.abs(x).toPrecision(3)))}`;
}

function percent(x) {
  return `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;
}

function ago(steps) {
  return steps === 0 ? "now" : steps === 1 ? "1 step ago" : `${steps} steps ago`;
}

// An array of the page: 32-bit floats, or 16 bits per number between its extremes.
const unpacked = new Map();
function unpack(packed) {
  if (!unpacked.has(packed)) {
    const bytes = Uint8Array.from(atob(packed.floats ?? packed.words), (c) => c.charCodeAt(0)).buffer;
    const scaled = () => Float32Array.from(new Uint16Array(bytes), (word) => packed.low + packed.step * word);
    unpacked.set(packed, "floats" in packed ? new Float32Array(bytes) : scaled());
  }
  return unpacked.get(packed);
}

function row(packed, ...place) {
  const whole = unpack(packed);
  let size = whole.length, start = 0;
  place.forEach((index, axis) => {
    size /= packed.shape[axis];
    start += index * size;
  });
  return whole.subarray(start, start + size);
}

// Colours ------------------------------------------------------------------------------------

function rgb(name) {
  const probe = element("span", { style: `color: var(${name})` });
  document.body.append(probe);
  const channels = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return channels;
}

let paint = {};
function mix() {
  paint = { ground: rgb("--raised"), less: rgb("--c0"), more: rgb("--c1"), ink: rgb("--ink"), accent: rgb("--c0") };
}

// From the ground to a colour; below 0 to another one.
function shade(x) {
  const to = x < 0 ? paint.less : paint.more, share = Math.min(1, Math.abs(x));
  return paint.ground.map((ground, i) => ground + (to[i] - ground) * share);
}

// A map of numbers in [-1, 1]: value(x, y) of `width` columns and `height` rows.
function drawMap(canvas, width, height, value) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) image.data.set([...shade(value(x, y)), 255], 4 * (y * width + x));
  }
  context.putImageData(image, 0, 0);
}

// The episode --------------------------------------------------------------------------------

function episode() {
  return DATA.episodes[at.episode];
}

function steps() {
  return episode().reward.length;
}

// Another player next to this one follows; `mirrored`: this one follows the other.
function go(step, mirrored = false) {
  at.step = Math.max(0, Math.min(steps(), Math.round(step)));
  if (at.step === steps()) pause();
  update();
  if (!mirrored) parent.mirror?.(window, at.step);
}

function pick(index) {
  pause();
  at.episode = Math.min(index, DATA.episodes.length - 1);
  at.step = 0;
  build();
}

let timer = null;
function play() {
  if (at.step === steps()) at.step = 0;
  at.playing = true;
  $("now").setAttribute("aria-live", "off");
  $("play").textContent = "Stop";
  const wait = 1000 / (DATA.fps * Number($("speed").value));
  const every = Math.max(1, Math.round(16 / wait));
  timer = setInterval(() => go(at.step + every), wait * every);
}

function pause() {
  clearInterval(timer);
  at.playing = false;
  $("now").setAttribute("aria-live", "polite");
  $("play").textContent = "Play";
}

// The picture --------------------------------------------------------------------------------

function view(step) {
  const e = episode();
  if (e.image.length) {
    const image = element("img", { alt: `the environment at step ${step}` });
    image.onload = () => image.classList.toggle("small", image.naturalWidth < 200);
    image.src = DATA.images[e.image[step]];
    return image;
  }
  const canvas = element("canvas", { role: "img" });
  bars(canvas, step);
  return canvas;
}

// The large picture; the element is reused, which avoids a flicker.
function show(step) {
  const there = $("screen").firstElementChild, e = episode();
  if (!there || there.tagName !== (e.image.length ? "IMG" : "CANVAS")) $("screen").replaceChildren(view(step));
  else if (e.image.length) [there.src, there.alt] = [DATA.images[e.image[step]], `the environment at step ${step}`];
  else bars(there, step);
}

// If there is no picture: the numbers of the observation as bars.
function bars(canvas, step) {
  const seen = row(episode().seen, step), all = unpack(episode().seen);
  const most = all.reduce((m, x) => Math.max(m, Math.abs(x)), 1e-9);
  canvas.width = 400;
  canvas.height = 200;
  canvas.setAttribute("aria-label", `the observation of step ${step} as bars`);
  const context = canvas.getContext("2d"), width = 400 / Math.max(1, seen.length);
  context.fillStyle = `rgb(${paint.ground})`;
  context.fillRect(0, 0, 400, 200);
  if (!seen.length) {
    canvas.setAttribute("aria-label", "no picture");
    context.fillStyle = `rgb(${paint.ink})`;
    context.font = "16px sans-serif";
    context.fillText("no picture", 20, 106);
  }
  seen.forEach((x, i) => {
    context.fillStyle = `rgb(${paint.accent})`;
    const tall = (95 * Math.abs(x)) / most;
    context.fillRect(i * width + width * 0.1, x < 0 ? 100 : 100 - tall, width * 0.8, Math.max(1, tall));
  });
  context.fillStyle = `rgb(${paint.ink})`;
  context.fillRect(0, 99.5, 400, 1);
}

// One bar of a number between low and high, from zero or from the left end.
function bar(name, x, low, high, text, mark = null) {
  const place = (v) => (100 * (Math.min(Math.max(v, low), high) - low)) / (high - low || 1);
  const zero = place(Math.max(low, Math.min(0, high))), end = place(x);
  const left = Math.min(zero, end), width = Math.abs(end - zero);
  const track = element("div", { class: "track" }, element("div", { class: "fill", style: `left:${left}%;width:${width}%` }));
  if (mark !== null) track.append(element("div", { class: "mark", style: `left:${place(mark)}%` }));
  return element("div", { class: "bar" }, element("span", { class: "name" }, name), track, element("span", { class: "number" }, text));
}

function choice(step) {
  const box = $("choice");
  box.replaceChildren();
  box.classList.toggle("over", step === steps()); // there is no action; the bars keep their place
  step = Math.min(step, steps() - 1);
  const policy = episode().policy, taken = episode().action[step];
  if (DATA.choices.length) {
    const allowed = episode().allowed && row(episode().allowed, step);
    let place = 0;
    DATA.choices.forEach((size, component) => {
      const likely = row(policy, step, component), start = DATA.start[component] || 0;
      for (let i = 0; i < size; i++) {
        const name = DATA.choices.length > 1 ? `${DATA.actions[component]}: ${i + start}` : DATA.actions[i];
        const forbidden = allowed !== null && !allowed[place++];
        const probability = bar(name, likely[i], 0, 1, forbidden ? "masked" : percent(likely[i]));
        probability.classList.toggle("forbidden", forbidden);
        probability.classList.toggle("taken", taken[component] === i + start);
        box.append(probability);
      }
    });
    return;
  }
  const mean = row(policy, step, 0), deviation = row(policy, step, 1);
  for (let i = 0; i < DATA.width; i++) {
    const all = episode().action.map((action) => action[i]);
    const low = DATA.low[i] ?? Math.min(-1, ...all), high = DATA.high[i] ?? Math.max(1, ...all);
    const spread = number(Number(deviation[i].toPrecision(2)));
    box.append(bar(DATA.actions[i], mean[i], low, high, `${number(mean[i])} ±${spread}`, taken[i]));
  }
}

function observed(step) {
  const list = $("observed");
  if (!list || !list.parentElement.open) return;
  list.replaceChildren();
  const seen = row(episode().seen, step), all = unpack(episode().seen);
  const most = all.reduce((m, x) => Math.max(m, Math.abs(x)), 1e-9);
  seen.forEach((x, i) => {
    const entry = bar(DATA.observations[i], x, -most, most, number(x));
    entry.classList.toggle("hidden", DATA.masked.includes(i));
    list.append(entry);
  });
}

function now(step) {
  const e = episode(), last = step === steps();
  const sum = e.reward.slice(0, step + !last).reduce((a, b) => a + b, 0);
  const quantities = [
    ["reward", last ? null : e.reward[step]],
    ["return so far", sum],
    ["value", e.value[step]],
    ["advantage", last || !e.advantage ? null : e.advantage[step]],
    ["entropy", last ? null : e.entropy[step]],
  ];
  const cells = quantities.map(([name, x]) => element("div", {}, element("dt", {}, name), element("dd", { "data-name": name }, number(x))));
  $("now").replaceChildren(...cells);
}

// Over time ----------------------------------------------------------------------------------

// A chart over time: a click or a drag goes to that step.
function over(...children) {
  const box = element("div", { class: "over" }, ...children, element("div", { class: "needle" }));
  const seek = (event) => {
    const frame = box.getBoundingClientRect();
    go(((event.clientX - frame.left) / frame.width) * steps() - 0.5);
  };
  box.addEventListener("pointerdown", (event) => {
    pause();
    seek(event);
  });
  box.addEventListener("pointermove", (event) => event.buttons && seek(event));
  return box;
}

// Values range from their least to their largest; other quantities from 0, which means something for them.
function lane(name, values) {
  const finite = values.filter((x) => x !== null), ends = name === "value" ? finite : [0, ...finite];
  const low = Math.min(...ends), high = Math.max(...ends), span = high - low || 1;
  const x = (t) => (t / steps()) * 1000, y = (v) => 54 - (48 * (v - low)) / span;
  // Rewards hold for a step; a slope between two of them would show rewards that were never there.
  const places = name === "reward" ? [0, 1] : [0.5];
  const points = values.flatMap((v, t) => places.map((part) => `${x(t + part).toFixed(1)},${y(v).toFixed(1)}`)).join(" ");
  const words = `${name} over ${steps()} steps, from ${number(Math.min(...finite))} to ${number(Math.max(...finite))}`;
  const picture = shape(
    "svg",
    { viewBox: "0 0 1000 60", preserveAspectRatio: "none", role: "img", "aria-label": words },
    shape("line", { x1: 0, x2: 1000, y1: y(Math.max(low, 0)), y2: y(Math.max(low, 0)), class: "axis", "vector-effect": "non-scaling-stroke" }),
    shape("polyline", { points, class: "line", stroke: "var(--c0)", "vector-effect": "non-scaling-stroke" }),
  );
  const value = element("span", { class: "number", "data-lane": name });
  const range = element("span", { class: "range" }, element("span", {}, number(high)), element("span", {}, number(low)));
  return element("div", { class: "lane" }, element("span", {}, name), range, over(picture), value);
}

// The steps worth a look: where a quantity of the agent is largest, if it varies.
function moments() {
  const e = episode(), peaks = [];
  const peak = (name, values, text = number) => {
    const most = Math.max(...values), step = values.indexOf(most);
    if (most > Math.min(...values) + 1e-9 * Math.abs(most) && most !== 0) peaks.push([name, step, text(most)]);
  };
  const value = e.value.slice(0, steps());
  e.trial.slice(0, 9).forEach(([start, x], i) => peaks.push([`episode ${i + 1}`, start, `return ${number(x)}`]));
  peak("least certain action", e.entropy, (x) => `entropy ${number(x)}`);
  peak("highest value", value);
  peak("largest fall of value", value.map((x, t) => (t ? value[t - 1] - x : 0)), (x) => `by ${number(x)}`);
  for (const { name: owner, influence, attention } of e.memories) {
    for (const [name, { total, changes, least }] of Object.entries(influence)) {
      const sizes = total.map((x, t) => (Math.max(...row(changes, t).map(Math.abs)) >= least ? x : 0));
      peak(`memory matters most to the ${name}`, sizes, (x) => `changes it by ${number(x)}`);
    }
    if (!attention.length) continue;
    const layer = attention.at(-1), heads = layer.shape[1];
    const mean = (t) => (_, k) => [...Array(heads).keys()].reduce((sum, head) => sum + row(layer, t, head)[k], 0) / heads;
    // Not among the first steps, in which a single past step has a large weight because there are few.
    const past = (t) => (t < 8 ? 0 : Math.max(...row(layer, t, 0).map(mean(t)).subarray(1)));
    peak(`${owner} attends most to one past step`, value.map((_, t) => past(t)), percent);
  }
  $("moments").replaceChildren(...peaks.map(([name, step, text]) => {
    const button = element("button", { type: "button" }, name, element("small", {}, `step ${step}, ${text}`));
    button.addEventListener("click", () => (pause(), go(step)));
    return button;
  }));
}

// In a trial: the return of the present episode so far.
function runningReturn({ reward, trial }) {
  const starts = new Set(trial.map(([start]) => start));
  let sum = 0;
  return reward.map((x, t) => (sum = x + (starts.has(t) ? 0 : sum)));
}

function lanes() {
  const e = episode();
  e.lanes = { reward: e.reward, value: e.value.slice(0, steps()) };
  if (e.advantage) e.lanes.advantage = e.advantage;
  e.lanes.entropy = e.entropy;
  if (e.trial.length) e.lanes["return of the episode"] = runningReturn(e);
  $("lanes").replaceChildren(...Object.entries(e.lanes).map(([name, values]) => lane(name, values)));
  if (DATA.unit) $("lanes").append(element("p", { class: "note" }, `Values are ${DATA.unit}.`));
  $("seen").replaceChildren();
  if (!DATA.observations.length) return;
  const open = DATA.observations.length <= 12 ? { open: "" } : {};
  const folded = element("details", open, element("summary", {}, DATA.normalized ? "Observation, normalised" : "Observation"), element("div", { id: "observed" }));
  folded.addEventListener("toggle", () => observed(at.step));
  $("seen").append(folded);
}

// Memories -----------------------------------------------------------------------------------

function panel(title, tools, ...children) {
  return element("div", { class: "panel" }, element("div", { class: "head" }, element("h3", {}, title), ...tools), ...children);
}

function selection(name, names, chosen, onChange) {
  const box = element("select", {}, ...names.map((text, i) => element("option", { value: i }, text)));
  box.value = chosen;
  box.addEventListener("change", () => onChange(Number(box.value)));
  return element("label", {}, `${name} `, box);
}

// The shown step, or the last one with an action.
function acted() {
  return Math.min(at.step, steps() - 1);
}

// Small pictures of the steps with the largest shares; shares[k] is of k steps ago.
function thumbs(box, shares, label = () => "") {
  const from = acted(), reach = Math.min(shares.length, from + 1);
  const order = [...Array(reach).keys()].sort((a, b) => shares[b] - shares[a]).slice(0, THUMBS);
  const largest = order.filter((k) => shares[k] >= 0.01).sort((a, b) => b - a);
  const buttons = largest.map((k) => {
    const button = element("button", { type: "button", "data-back": k }, view(from - k), element("b", {}, percent(shares[k])), ` ${label(k)}`, element("span", {}, ago(k)));
    button.addEventListener("click", () => go(from - k));
    return button;
  });
  box.replaceChildren(...buttons);
}

function thumbStrip(words) {
  return element("div", { class: "thumbs", role: "group", tabindex: 0, "aria-label": words });
}

// A map of the past: a click goes to the step under it.
function pastCanvas(tall, reach) {
  const canvas = element("canvas", { class: "map", role: "img", style: `height:${tall}rem` });
  canvas.addEventListener("click", (event) => {
    const frame = canvas.getBoundingClientRect();
    go(acted() - (reach - 1 - Math.floor(((event.clientX - frame.left) / frame.width) * reach)));
  });
  return canvas;
}

// Rows of numbers over the past, the present at the right end.
function pastMap(canvas, rows) {
  const reach = rows[0].length;
  const most = Math.max(1e-9, ...rows.map((numbers) => numbers.reduce((a, b) => Math.max(a, Math.abs(b)), 0)));
  drawMap(canvas, reach, rows.length, (x, y) => rows[y][reach - 1 - x] / most);
}

function attention(memory, index) {
  const layers = memory.attention, names = layers.map((_, i) => `${i + 1} of ${layers.length}`);
  layerOf[index] ??= layers.length - 1;
  const heads = layers[0].shape[1], reach = layers[0].shape[2];
  const canvas = pastCanvas(Math.max(3, heads * 1.1), reach);
  const strip = thumbStrip("steps with the largest attention weights");
  const draw = () => {
    const step = acted(), layer = layers[layerOf[index]];
    const rows = [...Array(heads).keys()].map((head) => row(layer, step, head));
    pastMap(canvas, rows);
    const mean = Float32Array.from(rows[0], (_, k) => rows.reduce((sum, weights) => sum + weights[k], 0) / heads);
    const most = mean.indexOf(Math.max(...mean));
    canvas.setAttribute("aria-label", `attention weights of layer ${names[layerOf[index]]}, ${heads} heads, over the last ${reach} steps; largest mean weight: ${ago(most)}, ${percent(mean[most])}`);
    strip.dataset.weight = mean[most];
    thumbs(strip, mean);
  };
  const labels = element("div", { "aria-hidden": "true" }, ...[...Array(heads).keys()].map((head) => element("span", {}, `head ${head + 1}`)));
  const tool = selection("layer", names, layerOf[index], (chosen) => {
    layerOf[index] = chosen;
    draw();
  });
  const ends = element("div", { class: "ends" }, element("span", {}, ago(reach - 1)), element("span", {}, `one row per head, ${heads} heads`), element("span", {}, "now"));
  memory.draws.push(draw);
  const title = layers.length > 1 ? "Attention weights" : "Attention weights, layer 1 of 1";
  return panel(title, layers.length > 1 ? [tool] : [], element("div", { class: "heads" }, labels, canvas), ends, strip);
}

// Changes by remembering one more step, as shares of the sum of their sizes; none if all are too small.
function influence(memory, name) {
  const { changes, total, least, unit, level, alone } = memory.influence[name], reach = changes.shape[1];
  const words = element("p", { class: "note", "data-influence": name });
  const canvas = pastCanvas(1.6, reach);
  const strip = thumbStrip(`steps with the largest influence on the ${name}`);
  memory.draws.push(() => {
    const step = acted(), signed = row(changes, step), sizes = signed.map(Math.abs);
    const measurable = total[step] > 0 && Math.max(...sizes) >= least;
    pastMap(canvas, [measurable ? signed : signed.map(() => 0)]);
    const outputs = level ? `${unit[0].toUpperCase()}${unit.slice(1)}: ${number(level[step])}; without memory: ${number(alone[step])}. ` : "";
    words.textContent = outputs + (measurable
      ? `Remembering one more step at a time changes the ${unit} by ${number(total[step])} in total. Shares are of this total.`
      : `No measurable influence: remembering one more step changes the ${unit} by less than ${number(least)}.`);
    canvas.setAttribute("aria-label", `influence on the ${name} over the last ${reach} steps; ${words.textContent}`);
    thumbs(strip, measurable ? sizes.map((x) => x / total[step]) : [], (k) => `(${signedNumber(signed[k])})`);
  });
  const ends = element("div", { class: "ends" }, element("span", {}, ago(reach - 1)), element("span", {}, "now"));
  return panel(`Influence of remembered steps on the ${name}`, [], canvas, ends, words, strip);
}

// Units by the step at which each changes most.
function ordered(packed) {
  const [length, units] = packed.shape, whole = unpack(packed), changes = [];
  for (let unit = 0; unit < units; unit++) {
    let most = 0, when = 0;
    for (let t = 1; t < length; t++) {
      const change = Math.abs(whole[t * units + unit] - whole[(t - 1) * units + unit]);
      if (change > most) [most, when] = [change, t];
    }
    changes.push([when, unit]);
  }
  return changes.sort((a, b) => a[0] - b[0]).map(([, unit]) => unit);
}

function states(memory, index, title) {
  const packed = memory.states[title], [length, units] = packed.shape, whole = unpack(packed);
  const key = `${index} ${title}`;
  const most = whole.reduce((m, x) => Math.max(m, Math.abs(x)), 1e-9);
  const moves = whole.reduce((m, x, i) => (i < units ? m : Math.max(m, Math.abs(x - whole[i - units]))), 1e-9);
  const canvas = element("canvas", { class: "map", role: "img", style: `height:${Math.min(14, Math.max(2, units * 0.16))}rem` });
  const draw = () => {
    const order = orderOf[key] ? ordered(packed) : [...Array(units).keys()];
    const value = (x, y) => whole[x * units + order[y]];
    const change = (x, y) => (x ? Math.abs(value(x, y) - value(x - 1, y)) : 0);
    drawMap(canvas, length, units, (x, y) => showOf[key] ? change(x, y) / moves : value(x, y) / most);
    canvas.setAttribute("aria-label", `${title}: ${showOf[key] ? "changes" : "values"} of ${units} units over ${length} steps`);
  };
  const choose = (kept) => (chosen) => {
    kept[key] = chosen;
    draw();
  };
  const tools = [
    selection("show", ["values", "changes"], showOf[key] || 0, choose(showOf)),
    selection("order", ["by index", "by time of largest change"], orderOf[key] || 0, choose(orderOf)),
  ];
  draw();
  return panel(title, tools, over(canvas), element("div", { class: "ends" }, element("span", {}, `one row per unit, ${units} units`), element("span", {}, "time")));
}

function trail(memory) {
  const [length] = memory.path.shape, points = [...Array(length).keys()].map((t) => row(memory.path, t));
  const low = [0, 1].map((i) => Math.min(...points.map((p) => p[i])));
  const high = [0, 1].map((i) => Math.max(...points.map((p) => p[i])));
  // One scale for both axes, so that distances are comparable.
  const span = Math.max(high[0] - low[0], high[1] - low[1]) || 1;
  const place = (p) => [0, 1].map((i) => 50 + (88 * (p[i] - (low[i] + high[i]) / 2)) / span);
  const line = (end) => points.slice(0, end).map((p) => place(p).map((v) => v.toFixed(2)).join(",")).join(" ");
  const gone = shape("polyline", { class: "gone" }), dot = shape("circle", { r: 2.4, fill: "var(--c1)" });
  const picture = shape(
    "svg",
    { viewBox: "0 0 100 100", class: "path", role: "img", "aria-label": "the two principal components of the memory state as a path" },
    shape("polyline", { class: "trail", points: line(length) }),
    gone,
    dot,
  );
  memory.draws.push(() => {
    const step = acted(), [x, y] = place(points[step]);
    gone.setAttribute("points", line(step + 1));
    dot.setAttribute("cx", x);
    dot.setAttribute("cy", y);
  });
  const share = `two principal components, ${percent(memory.share)} of the variance`;
  return panel("Path of the memory state", [], picture, element("div", { class: "ends" }, element("span", {}, share)));
}

function block(memory, index) {
  memory.draws = [];
  const left = memory.path ? Object.keys(memory.states).map((title) => states(memory, index, title)) : [];
  if (memory.attention.length) left.push(attention(memory, index));
  const right = Object.keys(memory.influence).map((name) => influence(memory, name));
  const columns = element("div", { class: "columns" }, ...left, ...right, ...(memory.path ? [trail(memory)] : []));
  const title = memory.kind ? `The ${memory.name}'s memory: ${memory.kind}` : `The ${memory.name} has no memory`;
  return element("section", { class: "memory", "data-memory": memory.name }, element("h2", {}, title), columns);
}

// Everything ---------------------------------------------------------------------------------

function facts() {
  const e = episode(), success = e.success === null ? "" : e.success ? ", a success" : ", no success";
  const kind = e.trial.length ? "trials" : "episodes";
  const returns = e.trial.slice(0, 20).map(([, x]) => number(x)).join(", ") + (e.trial.length > 20 ? " ..." : "");
  const parts = e.trial.length ? `; return of each episode ${returns}` : "";
  $("facts").textContent = `${e.name} of ${DATA.played} ${kind}: return ${number(e.score)} in ${steps()} steps${success}; ${e.end}${parts}`;
}

// Draw an episode.
function build() {
  mix();
  facts();
  [...$("picks").children].forEach((button, i) => button.setAttribute("aria-pressed", i === at.episode));
  $("time").max = steps();
  moments();
  lanes();
  $("memories").replaceChildren(...episode().memories.map(block));
  update();
}

// Draw a step.
let drawn = 0;
function update() {
  const e = episode(), step = at.step, last = step === steps();
  show(step);
  $("time").value = step;
  $("time").setAttribute("aria-valuetext", `step ${step} of ${steps()}`);
  $("clock").textContent = last ? `the end, ${e.end}` : `step ${step} of ${steps()}`;
  now(step);
  choice(step);
  observed(step);
  for (const [name, values] of Object.entries(e.lanes)) {
    document.querySelector(`[data-lane="${name}"]`).textContent = number(values[step]);
  }
  const place = `${(100 * Math.min(step + 0.5, steps())) / steps()}%`;
  for (const needle of document.querySelectorAll(".needle")) needle.style.left = place;
  // The small pictures are drawn at most every 120 ms while the episode plays.
  if (at.playing && performance.now() - drawn < 120) return;
  for (const memory of e.memories) memory.draws.forEach((draw) => draw());
  drawn = performance.now();
}

function toggle() {
  if (!at.playing) return play();
  pause();
  update();
}

function keys(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const kind = event.target.tagName, typing = ["SELECT", "INPUT"].includes(kind);
  if (event.key === " " && !["BUTTON", "SELECT", "SUMMARY"].includes(kind)) toggle();
  else if (typing && event.target.id !== "time") return;
  else if (event.key === "ArrowLeft") go(at.step - (event.shiftKey ? 10 : 1));
  else if (event.key === "ArrowRight") go(at.step + (event.shiftKey ? 10 : 1));
  else if (event.key === "Home") go(0);
  else if (event.key === "End") go(steps());
  else if (Number(event.key) >= 1 && Number(event.key) <= DATA.episodes.length) pick(Number(event.key) - 1);
  else return;
  event.preventDefault();
}

// Two players with the page itself, which starts anew in each.
function beside() {
  pause();
  const html = `<!doctype html>${document.documentElement.outerHTML}`, second = at.episode ? 0 : 1;
  const title = (i) => `${DATA.title}, ${DATA.episodes[i].name} episode`;
  pair([at.episode, second].map((i) => ({ title: title(i), html, episode: i })));
}

$("picks").replaceChildren();
DATA.episodes.forEach((e, i) => {
  const button = element("button", { type: "button" }, e.name, element("small", {}, `return ${number(e.score)}`));
  button.addEventListener("click", (event) => {
    pick(i);
    if (event.detail) button.blur(); // a click of the mouse: space shall play
  });
  $("picks").append(button);
});
$("play").addEventListener("click", toggle);
$("back").addEventListener("click", () => (pause(), go(at.step - 1)));
$("on").addEventListener("click", () => (pause(), go(at.step + 1)));
$("time").addEventListener("input", () => (pause(), go(Number($("time").value))));
$("speed").addEventListener("change", () => at.playing && (pause(), play()));
document.addEventListener("keydown", keys);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
$("missing").textContent = DATA.note ? `No pictures: ${DATA.note}.` : "";
$("beside").addEventListener("click", beside);
$("beside").hidden = Boolean(parent.mirror) || DATA.episodes.length < 2;
build();
