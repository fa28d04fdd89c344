// How charts are drawn, and what they do under the pointer and the keyboard.
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = {left: 54, right: 12, top: 10, bottom: 38};

function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function shape(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}
function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) if (value != null && value !== false) made.setAttribute(name, value);
  made.append(...children.filter((child) => child != null));
  return made;
}
const label = (x, y, text, attributes = {}) =>
  shape("text", {x, y, fill: "var(--muted)", "font-size": 11, ...attributes}, String(text));
const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

/** One figure: its chart, drawn again whenever the page's state or its width changes. */
class Figure {
  constructor(figure, chart, state) {
    Object.assign(this, {figure, chart, state, zoom: null, at: null});
    this.still = figure.querySelector(":scope > svg");
    this.title = figure.querySelector("h3").textContent;
    this.box = element("div", {class: "chart"});
    this.tip = element("div", {class: "tip", hidden: ""});
    this.still.before(this.box);
    this.still.setAttribute("hidden", "");
    this.reading = !chart.kind || chart.kind === "clients"; // a line over an x axis, read at one x
    const described = this.still.querySelector("title").textContent;
    if (this.reading) {
      filled(this.box, {role: "slider", tabindex: 0, "aria-roledescription": "chart", "aria-label": `${described} Arrow keys read values, plus and minus zoom.`}, []);
      this.listen();
    } else filled(this.box, {role: "img", "aria-label": described}, []);
    if (chart.kind === "split") this.box.addEventListener("pointermove", (event) => this.cell(event));
    this.box.addEventListener("pointerleave", () => this.point(null));
    new ResizeObserver(() => this.box.clientWidth !== this.width && this.draw()).observe(this.box);
    this.draw();
  }

  get x() {
    return this.chart.x || this.state.x;
  }

  draw() {
    this.width = this.box.clientWidth || 400;
    const kind = this.chart.kind;
    this.svg = shape("svg", {"aria-hidden": "true"});
    if (kind === "split") this.split();
    else if (kind === "dots" || kind === "spread") this.rows();
    else this.curves();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.box.replaceChildren(this.svg, this.tip);
    this.point(null);
  }

  // --- lines over an x axis -----------------------------------------------------------------------------------------
  curves() {
    const {chart, x, width, zoom} = this;
    this.height = Math.max(190, Math.min(310, 0.62 * width));
    this.strokes = strokesOf(chart, x, this.state.single, this.state.hidden);
    const points = this.strokes.flatMap((stroke) => stroke.points);
    const full = chart.kind === "clients" ? [0, 100] : rangeOf(points.map((p) => p.x), false, points.length ? 0.02 : 0);
    this.domain = zoom || full;
    const inside = points.filter((p) => p.x >= this.domain[0] && p.x <= this.domain[1]);
    const values = (inside.length ? inside : points).flatMap((p) => (p.sd ? [p.y - p.sd, p.y + p.sd, p.y] : [p.y]));
    this.sx = scaleOf(this.domain, [MARGIN.left, width - MARGIN.right]);
    this.sy = scaleOf(rangeOf(values, chart.log), [this.height - MARGIN.bottom, MARGIN.top], chart.log);
    const range = rangeOf(values, chart.log);
    const unit = x === "bytes" ? "B" : "";
    for (const tick of ticksOf(this.domain, false, Math.min(6, width / 80), x === "round"))
      this.vertical(tick, chart.kind === "clients" || x !== "bytes" ? short(tick) : tick ? short(tick, unit) : "0");
    for (const tick of ticksOf(range, chart.log, 5)) this.horizontal(tick);
    this.axes(chart.kind === "clients" ? "clients, from the worst (%)" : X_AXES[x], chart.axis);
    const clip = `clip-${this.figure.id}`;
    this.svg.append(shape("clipPath", {id: clip}, shape("rect", {x: MARGIN.left - 3, y: 0, width: width - MARGIN.left - MARGIN.right + 8, height: this.height - MARGIN.bottom + 3})));
    const lines = shape("g", {"clip-path": `url(#${clip})`, fill: "none", "stroke-linejoin": "round"});
    for (const stroke of this.strokes) lines.append(...this.stroke(stroke));
    this.marks = shape("g", {});
    this.svg.append(lines, this.marks);
    if (!this.strokes.length) this.svg.append(label(width / 2, this.height / 2, "nothing to draw", {"text-anchor": "middle"}));
  }

  stroke({line, points, thin}) {
    const {sx, sy, chart} = this, ok = points.filter((p) => !chart.log || p.y > 0), made = [];
    const path = (list, y) => list.map((p, i) => `${i ? "L" : "M"}${sx(p.x).toFixed(1)} ${sy(y(p)).toFixed(1)}`).join("");
    const low = (p) => (chart.log ? p.y ** 2 / (p.y + (p.sd || 0)) : p.y - (p.sd || 0)); // as far down as up on a log axis
    if (ok.some((p) => p.sd))
      made.push(shape("path", {fill: line.color, opacity: 0.16, d: `${path(ok, (p) => p.y + (p.sd || 0))}L${path([...ok].reverse(), low).slice(1)}Z`}));
    made.push(shape("path", {stroke: line.color, "stroke-width": thin ? 1.2 : 2, "stroke-dasharray": line.dashes || null, opacity: thin ? 0.75 : 1, d: path(ok, (p) => p.y)}));
    if (ok.length <= 12) made.push(...ok.map((p) => shape("circle", {cx: sx(p.x), cy: sy(p.y), r: thin ? 2 : 3, fill: line.color})));
    return made;
  }

  // --- one line for each row: values measured once, or the spread over clients ----------------------------------------
  rows() {
    const {chart, width} = this, spread = chart.kind === "spread";
    const lines = chart.lines.filter((line) => line.values.length && !this.state.hidden.has(line.name));
    const left = Math.min(0.38 * width, 14 + 6.3 * Math.max(0, ...lines.map((line) => Math.min(line.name.length, 26)))), step = 30;
    this.height = MARGIN.top + step * Math.max(1, lines.length) + MARGIN.bottom;
    const ends = ({values}) => [-1, 1].map((sign) => mean(values) + sign * deviation(values)).filter((v) => !chart.log || v > 0);
    const range = rangeOf(lines.flatMap((line) => (spread ? line.values : [...line.values, ...ends(line)])), chart.log, 0.1);
    this.sx = scaleOf(range, [left, width - MARGIN.right], chart.log);
    for (const tick of ticksOf(range, chart.log, Math.min(6, width / 90))) this.vertical(tick, short(tick));
    this.axes(chart.axis, "");
    lines.forEach((line, i) => {
      const y = MARGIN.top + step * (i + 0.5) + 4, ink = {stroke: line.color, "stroke-width": 1.6}, {values} = line;
      const bar = (from, to, attributes) => shape("line", {x1: this.sx(from), x2: this.sx(to), y1: y, y2: y, ...ink, ...attributes});
      const dot = (at, r, attributes) => shape("circle", {cx: this.sx(at), cy: y, r, fill: line.color, ...attributes});
      const middle = spread ? values[2] : mean(values), sd = spread ? 0 : deviation(values);
      const said = told(middle, sd, chart.unit);
      const row = shape("g", {}, shape("title", {}, spread ? `${line.name}: ${values.map((v) => told(v, 0, "")).join(", ")}` : `${line.name}: ${said}`));
      row.append(shape("rect", {x: 0, y: y - step / 2, width, height: step, fill: "transparent"}));
      row.append(label(left - 8, y + 4, cut(line.name, Math.floor((left - 10) / 6)), {"text-anchor": "end", fill: "var(--ink)"}));
      if (spread) row.append(bar(values[0], values[4]), bar(values[1], values[3], {"stroke-width": 8, opacity: 0.45}), dot(middle, 4));
      else if (this.state.single && values.length > 1) row.append(...values.map((v) => dot(v, 3.2, {opacity: 0.75})));
      else row.append(bar(middle - sd, middle + sd), dot(middle, 4));
      if (!spread) row.append(label(this.sx(middle), y - 8, said, {"text-anchor": "middle", fill: "var(--ink)", "font-size": 10.5}));
      this.svg.append(row);
      row.addEventListener("pointermove", (event) => this.show(event.offsetX, line.name, this.about(line)));
    });
  }

  about(line) {
    const unit = this.chart.unit;
    if (this.chart.kind === "spread")
      return ["lowest", "a quarter below", "median", "a quarter above", "highest"].map((name, i) => ({name, said: told(line.values[i], 0, unit)}));
    return [{name: line.values.length > 1 ? "mean" : "value", said: told(mean(line.values), deviation(line.values), unit)}];
  }

  // --- samples by client and class ------------------------------------------------------------------------------------
  split() {
    const {counts, names, ticks, rungs, unseen} = this.chart, clients = counts.length, classes = counts[0].length;
    const most = Math.max(1, ...counts.flat()), few = clients * classes <= 400;
    const longest = (words) => Math.max(0, ...words.map((word) => word.length));
    const left = Math.max(MARGIN.left, 30 + 6 * longest(rungs)), bottom = MARGIN.bottom + 3 * longest(ticks); // turned names
    const side = (this.width - left - MARGIN.right) / clients, tall = Math.max(10, Math.min(26, few ? side : 16));
    this.height = MARGIN.top + tall * classes + bottom;
    Object.assign(this, {side, tall, left});
    counts.forEach((own, i) => own.forEach((count, k) => {
      if (!count) return;
      const x = left + side * i, y = MARGIN.top + tall * (classes - 1 - k), fill = unseen[i] ? "var(--c1)" : "var(--c0)";
      const r = Math.sqrt(count / most) * Math.min(side, tall) * 0.48;
      this.svg.append(few ? shape("circle", {cx: x + side / 2, cy: y + tall / 2, r, fill, opacity: 0.85})
        : shape("rect", {x, y, width: side + 0.3, height: tall, fill, opacity: ((count / sum(own)) ** 0.6).toFixed(2)}));
    }));
    const every = Math.ceil(classes * 13 / (tall * classes)), apart = Math.ceil(26 / side);
    for (let k = 0; k < classes; k += every) this.svg.append(label(left - 8, MARGIN.top + tall * (classes - 0.5 - k) + 4, rungs[k] ?? k, {"text-anchor": "end"}));
    const foot = this.height - bottom + 14, middle = (i) => left + side * (i + 0.5);
    ticks.forEach((name, i) => this.svg.append(label(0, 0, name, {"text-anchor": "end", transform: `translate(${middle(i) + 4} ${foot - 2}) rotate(-30)`})));
    for (let i = 0; i < names.length && !ticks.length; i += apart) this.svg.append(label(middle(i), foot, i, {"text-anchor": "middle"}));
    this.axes("client", "class", left, bottom);
  }

  cell(event) {
    const {counts, names, classes, unseen} = this.chart, scale = this.width / this.box.clientWidth;
    const {left, top} = this.box.getBoundingClientRect();
    const i = Math.floor(((event.clientX - left) * scale - this.left) / this.side);
    const k = counts[0].length - 1 - Math.floor(((event.clientY - top) * scale - MARGIN.top) / this.tall);
    if (counts[i] === undefined || counts[i][k] === undefined) return this.point(null);
    this.show(event.clientX - left, `${names[i]}${unseen[i] ? ", unseen" : ""}`, [{name: classes[k] ?? `class ${k}`, said: String(counts[i][k])}, {name: "all", said: String(sum(counts[i]))}]);
  }

  // --- axes -----------------------------------------------------------------------------------------------------------
  vertical(tick, text) {
    const x = this.sx(tick);
    this.svg.append(shape("line", {x1: x, x2: x, y1: MARGIN.top, y2: this.height - MARGIN.bottom, stroke: "var(--line)", "stroke-width": 0.8}));
    this.svg.append(label(x, this.height - MARGIN.bottom + 15, text, {"text-anchor": "middle"}));
  }

  horizontal(tick) {
    const y = this.sy(tick);
    this.svg.append(shape("line", {x1: MARGIN.left, x2: this.width - MARGIN.right, y1: y, y2: y, stroke: "var(--line)", "stroke-width": 0.8}));
    this.svg.append(label(MARGIN.left - 7, y + 4, short(tick).replace(/^1·/, ""), {"text-anchor": "end"}));
  }

  axes(below, beside, left = MARGIN.left, bottom = MARGIN.bottom) {
    const middle = (this.height - bottom + MARGIN.top) / 2;
    this.svg.append(label((this.width + left) / 2, this.height - 6, below, {"text-anchor": "middle", fill: "var(--ink)"}));
    if (beside) this.svg.append(label(0, 0, cut(beside, 40), {"text-anchor": "middle", fill: "var(--ink)", transform: `translate(11 ${middle}) rotate(-90)`}));
  }
}

const deviation = (values) => {
  const center = mean(values);
  return values.length > 1 ? Math.sqrt(sum(values.map((v) => (v - center) ** 2)) / (values.length - 1)) : 0;
};
