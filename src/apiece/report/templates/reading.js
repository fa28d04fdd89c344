// A chart under the pointer and the keyboard: values at one x, and zoom.
Object.assign(Figure.prototype, {
  listen() {
    const {box} = this, at = (event) => ((event.clientX - box.getBoundingClientRect().left) * this.width) / box.clientWidth;
    let from = null, mark = null;
    box.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button) return this.read(this.sx.back(at(event)));
      [from, mark] = [at(event), shape("rect", {y: MARGIN.top, height: this.height - MARGIN.top - MARGIN.bottom, fill: "var(--c0)", opacity: 0.15})];
      this.svg.append(mark);
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      const here = at(event);
      if (mark) filled(mark, {x: Math.min(from, here), width: Math.abs(here - from)}, []);
      else this.read(this.sx.back(here));
    });
    box.addEventListener("pointerup", (event) => {
      if (mark) mark.remove();
      const ends = mark ? [from, at(event)].sort((a, b) => a - b) : [0, 0];
      from = mark = null;
      if (ends[1] - ends[0] > 8) this.zoomed(ends.map((end) => Math.max(this.domain[0], Math.min(this.domain[1], this.sx.back(end)))));
    });
    box.addEventListener("dblclick", () => this.zoomed(null));
    box.addEventListener("blur", () => this.point(null));
    box.addEventListener("focus", () => box.matches(":focus-visible") && this.step(0));
    box.addEventListener("keydown", (event) => {
      const keys = {ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1), ArrowUp: () => this.step(1), ArrowDown: () => this.step(-1),
        Home: () => this.step(-Infinity), End: () => this.step(Infinity), Escape: () => this.point(null),
        "+": () => this.closer(0.5), "-": () => this.closer(2), 0: () => this.zoomed(null)};
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  },

  /** Show this part of the x axis; null: all of it. */
  zoomed(domain) {
    this.zoom = domain;
    this.draw();
    this.changed && this.changed();
  },

  closer(factor) {
    const [low, high] = this.domain, center = this.at ?? (low + high) / 2, half = ((high - low) / 2) * factor;
    const points = this.strokes.flatMap((stroke) => stroke.points.map((p) => p.x));
    const all = [Math.min(...points), Math.max(...points)], next = [Math.max(all[0], center - half), Math.min(all[1], center + half)];
    this.zoomed(next[0] <= all[0] && next[1] >= all[1] ? null : next);
    this.read(center);
  },

  /** Move by points of the line that has most of them. */
  step(by) {
    const inside = (p) => p.x >= this.domain[0] && p.x <= this.domain[1];
    const most = this.strokes.map((stroke) => stroke.points.filter(inside)).sort((a, b) => b.length - a.length)[0];
    if (!most || !most.length) return;
    const now = this.at == null ? most.length - 1 : most.indexOf(nearest(most, Math.min(Math.max(this.at, most[0].x), most[most.length - 1].x), 0));
    this.read(most[Math.max(0, Math.min(most.length - 1, now + (this.at == null ? 0 : by)))].x);
  },

  /** Show every line's value nearest to x. */
  read(x) {
    const slack = (this.domain[1] - this.domain[0]) * 0.03;
    const found = this.strokes.map((stroke) => ({stroke, p: nearest(stroke.points, x, slack)})).filter(({p}) => p && p.x >= this.domain[0] && p.x <= this.domain[1]);
    if (!found.length) return this.point(null);
    const snap = found.reduce((a, b) => (Math.abs(b.p.x - x) < Math.abs(a.p.x - x) ? b : a)).p;
    const near = found.filter(({p}) => this.x !== "round" || this.chart.kind || p.x === snap.x);
    this.at = snap.x;
    const at = this.sx(snap.x);
    this.marks.replaceChildren(shape("line", {x1: at, x2: at, y1: MARGIN.top, y2: this.height - MARGIN.bottom, stroke: "var(--muted)", "stroke-dasharray": "3 3"}),
      ...near.filter(({p}) => !this.chart.log || p.y > 0).map(({stroke, p}) => shape("circle", {cx: this.sx(p.x), cy: this.sy(p.y), r: 4, fill: stroke.line.color, stroke: "var(--paper)"})));
    const lines = near.sort((a, b) => b.p.y - a.p.y).map(({stroke, p}) => ({name: p.label ? `${stroke.name}: ${p.label}` : stroke.name, color: stroke.line.color, said: told(p.y, p.sd, this.chart.unit)}));
    const where = place(this.chart, this.x, snap);
    this.show((at * this.box.clientWidth) / this.width, where, lines);
    const words = lines.slice(0, 8).map(({name, said}) => `${name} ${said}`).join("; ");
    filled(this.box, {"aria-valuemin": this.domain[0], "aria-valuemax": this.domain[1], "aria-valuenow": snap.x, "aria-valuetext": `${where}: ${words}`}, []);
  },

  /** The box beside the pointer: a heading, and a line for each value. */
  show(x, heading, lines) {
    const most = 14, rest = lines.length - most;
    this.tip.replaceChildren(element("b", {}, heading), ...lines.slice(0, most).map(({name, color, said}) => {
      const dot = color ? element("i") : null;
      if (dot) dot.style.background = color;
      return element("span", {}, dot, element("em", {}, name), said);
    }), rest > 0 ? `and ${rest} more` : "");
    this.tip.hidden = false;
    const width = this.tip.offsetWidth, whole = this.box.clientWidth;
    this.tip.style.left = `${Math.max(0, Math.min(whole - width, x > whole / 2 ? x - width - 14 : x + 14))}px`;
  },

  /** Nothing is read any more. */
  point(nothing) {
    this.at = nothing;
    this.tip.hidden = true;
    if (this.marks) this.marks.replaceChildren();
    if (this.reading) filled(this.box, {"aria-valuenow": this.domain[1], "aria-valuetext": "no value is read"}, []);
  },
});
