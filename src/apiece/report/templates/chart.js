// What a chart shows, as numbers: points of lines, ranges and ticks of axes, text of values. Nothing here draws.
const DATA = JSON.parse(document.getElementById("data").textContent);
const X_AXES = {round: "round", bytes: "bytes sent", seconds: "seconds of training"};

// --- points ---------------------------------------------------------------------------------------------------------
/** A line's seeds: each a name and points {x, y, t} in order, t being the round. */
function seedsOf(line, x) {
  return line.runs.map(([place, at, values]) => {
    const run = DATA.runs[place], along = run[x] || [];
    const places = at || values.map((_, i) => i);
    const points = places.map((i, n) => ({x: along[i], y: values[n], t: run.round[i]}));
    return {name: run.name, points: points.filter((p) => p.x != null && p.y != null)};
  });
}

/** The mean over seeds and the sample standard deviation, at the rounds that all seeds share. */
function meanOf(seeds) {
  const some = seeds.filter((seed) => seed.points.length);
  if (some.length < 2) return (some[0] || {points: []}).points;
  const others = some.slice(1).map((seed) => new Map(seed.points.map((p) => [p.t, p])));
  return some[0].points.filter((p) => others.every((found) => found.has(p.t))).map((p) => {
    const all = [p, ...others.map((found) => found.get(p.t))];
    const y = mean(all.map((q) => q.y));
    return {x: mean(all.map((q) => q.x)), y, t: p.t, sd: Math.sqrt(sum(all.map((q) => (q.y - y) ** 2)) / (all.length - 1))};
  });
}

const sum = (values) => values.reduce((a, b) => a + b, 0);
const mean = (values) => sum(values) / values.length;

/** What is drawn of a chart: for each visible line its look and its strokes, one for the mean or one for each seed. */
function strokesOf(chart, x, single, hidden) {
  const shown = chart.lines.filter((line) => !hidden.has(line.name));
  const strokes = shown.flatMap((line) => {
    if (chart.kind === "clients")
      return [{line, name: line.name, points: line.xs.map((at, i) => ({x: at, y: line.ys[i], label: line.names[i]}))}];
    const seeds = seedsOf(line, x);
    return single && seeds.length > 1
      ? seeds.map((seed) => ({line, name: `${line.name}, ${seed.name}`, points: seed.points, thin: true}))
      : [{line, name: line.name, points: meanOf(seeds)}];
  }).filter((stroke) => stroke.points.length);
  if (x !== "bytes") return strokes;
  const sent = (stroke) => stroke.points[stroke.points.length - 1].x, most = Math.max(...strokes.map(sent));
  return strokes.filter((stroke) => sent(stroke) >= most / 100); // what sends next to nothing would be one column of dots
}

/** The point of a line nearest to x; none where the line has ended, or has not begun. */
function nearest(points, x, slack) {
  if (!points.length || x < points[0].x - slack || x > points[points.length - 1].x + slack) return null;
  return points.reduce((best, p) => (Math.abs(p.x - x) < Math.abs(best.x - x) ? p : best));
}

// --- axes -----------------------------------------------------------------------------------------------------------
/** The lowest and the highest of values, with a margin; on a log axis of the positive ones. */
function rangeOf(values, log, margin = 0.04) {
  const known = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
  let low = Math.min(...known), high = Math.max(...known);
  if (!known.length) return log ? [0.1, 1] : [0, 1];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)];
  if (log) return [low / (high / low) ** margin, high * (high / low) ** margin];
  return [low - (high - low) * margin, high + (high - low) * margin];
}

/** A function from values to pixels; `back` is its inverse. */
function scaleOf([low, high], [from, to], log) {
  const of = log ? Math.log10 : (v) => v, back = log ? (v) => 10 ** v : (v) => v;
  const a = of(low), slope = (to - from) / (of(high) - a || 1);
  const scale = (v) => from + (of(v) - a) * slope;
  scale.back = (pixel) => back(a + (pixel - from) / slope);
  return scale;
}

/** Round numbers within a range: about `many` of them. */
function ticksOf([low, high], log, many, whole) {
  if (log && high / low >= 10) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      ticks.push(...[1, 2, 5].map((step) => Number(`${step}e${power}`)));
    const inside = ticks.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    const powers = inside.filter((v) => Math.abs(Math.log10(v) % 1) < 1e-9 || Math.abs(Math.log10(v) % 1) > 1 - 1e-9);
    const found = inside.length <= many + 2 ? inside : powers;
    return found.filter((_, i) => i % Math.ceil(found.length / (many + 2)) === 0);
  }
  const raw = (high - low) / many, power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 5, 10].find((s) => s * power >= raw * 0.999) * power;
  if (whole) step = Math.max(1, Math.round(step));
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({length: Math.max(0, last - first + 1)}, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

// --- text -----------------------------------------------------------------------------------------------------------
const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** A number in short form, with three digits: 1.23 M, 0.0123, 4.5·10⁻⁷. */
function short(value, unit = "") {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value), space = unit ? " " : "";
  const [factor, prefix] = PREFIXES.find(([f]) => size >= 0.9995 * f) || [1, ""];
  if (factor > 1) return `${minus(digits(value / factor))} ${prefix}${unit}`;
  if (size && size < 1e-3) {
    const power = Math.floor(Math.log10(size) + 1e-9), raised = [...String(power)].map((c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
    return `${minus(digits(value / 10 ** power))}·10${raised.join("")}${space}${unit}`;
  }
  return `${minus(digits(value))}${space}${unit}`;
}

const digits = (value) => (Math.abs(value) >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3))));
const minus = (text) => text.replace("-", "−");

/** A value of a chart with its deviation and unit. */
function told(value, sd, unit) {
  const write = unit === "%" ? (v) => v.toFixed(2) : (v) => short(v);
  return `${write(value)}${sd ? ` ± ${write(sd)}` : ""}${unit ? ` ${unit}` : ""}`;
}

/** A place on the x axis in words. */
function place(chart, x, point) {
  if (chart.kind === "clients") return `${short(point.x)} % of the clients`;
  const round = `round ${point.t}`;
  return x === "round" ? round : `${x === "bytes" ? short(point.x, "B") : short(point.x, "s")}, ${round}`;
}
