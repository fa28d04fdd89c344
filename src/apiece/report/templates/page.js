// The page: what is shown of all figures, legends, tables, files, and news of a run that goes on.
const KEY = `apiece ${location.pathname}`;
const state = {x: "round", single: false, hidden: new Set(), ...remembered()};

/** What was chosen on this page before; a browser may refuse to remember. */
function remembered() {
  try {
    const {x, single, hidden} = JSON.parse(localStorage.getItem(KEY)) || {};
    return {x: X_AXES[x] ? x : "round", single: Boolean(single), hidden: new Set(Array.isArray(hidden) ? hidden : [])};
  } catch {
    return {};
  }
}

function remember() {
  try {
    localStorage.setItem(KEY, JSON.stringify({...state, hidden: [...state.hidden]}));
  } catch {} // then the choice holds for this visit
}

const figures = [];
function redraw() {
  remember();
  for (const figure of figures) figure.draw();
}

/** A button of a figure or a table. */
function tool(text, about, act) {
  const button = element("button", {type: "button", "aria-label": about, title: about}, text);
  button.addEventListener("click", act);
  return button;
}

// --- figures --------------------------------------------------------------------------------------------------------
for (const figure of document.querySelectorAll("figure")) {
  const chart = DATA.charts[figure.dataset.chart], title = figure.querySelector("h3").textContent;
  const drawn = chart ? new Figure(figure, chart, state) : null;
  const section = figure.closest("section").querySelector("h2").textContent, name = fileName(section, title);
  const looks = () => (chart && chart.lines ? chart.lines.filter((line) => !state.hidden.has(line.name)) : []);
  const tools = element("div", {class: "tools"});
  if (drawn && drawn.reading) {
    const whole = tool("whole axis", `Show the whole axis of ${title}`, () => drawn.zoomed(null));
    whole.hidden = true;
    drawn.changed = () => (whole.hidden = !drawn.zoom);
    tools.append(whole);
  }
  if (chart) tools.append(tool("CSV", `Save the values of ${title} as CSV`, () => save(`${name}.csv`, csv(chartRows(chart, title)), "text/csv")));
  tools.append(tool("SVG", `Save ${title} as SVG`, () => {
    const many = looks().length <= 40 && !["dots", "spread"].includes(chart && chart.kind);
    save(`${name}.svg`, picture(drawn ? drawn.svg : figure.querySelector("svg"), title, many && looks().length > 1 ? looks() : []), "image/svg+xml");
  }));
  figure.append(tools);
  if (drawn) figures.push(drawn);
}

// --- legends --------------------------------------------------------------------------------------------------------
const names = new Set(figures.flatMap(({chart}) => (chart.lines || []).map((line) => line.name)));
const switches = [];
for (const item of document.querySelectorAll(".legend li")) {
  const {name} = item.dataset;
  if (!names.has(name)) continue; // it names a color, not a line
  const button = element("button", {type: "button", title: "Switch this line off or on"}, ...item.childNodes);
  item.replaceChildren(button);
  switches.push(() => button.setAttribute("aria-pressed", String(!state.hidden.has(name))));
  button.addEventListener("click", () => {
    if (!state.hidden.delete(name)) state.hidden.add(name);
    for (const show of switches) show();
    redraw();
  });
}
for (const show of switches) show();

// --- what holds for all figures -------------------------------------------------------------------------------------
function choice(title, name, options, chosen, choose) {
  const fields = element("fieldset", {}, element("legend", {}, title));
  for (const [value, text] of options) {
    const radio = element("input", {type: "radio", name, value});
    radio.checked = value === chosen;
    radio.addEventListener("change", () => choose(value));
    fields.append(element("label", {}, radio, ` ${text}`));
  }
  return fields;
}

const controls = document.querySelector(".controls");
const ways = Object.keys(X_AXES).filter((x) => DATA.runs.some((run) => run[x]));
if (!ways.includes(state.x)) state.x = "round";
if (ways.length > 1 && figures.some(({chart}) => !chart.kind && !chart.x))
  controls.append(choice("x axis", "x", ways.map((x) => [x, {round: "rounds"}[x] || x]), state.x, (x) => {
    state.x = x;
    for (const figure of figures) if (!figure.chart.x && !figure.chart.kind) figure.zoom = null;
    redraw();
    for (const figure of figures) figure.changed && figure.changed();
  }));
if (figures.some(({chart}) => (chart.lines || []).some((line) => (line.runs || []).length > 1)))
  controls.append(choice("lines", "seeds", [["mean", "mean over seeds"], ["single", "single seeds"]], state.single ? "single" : "mean", (way) => {
    state.single = way === "single";
    redraw();
  }));
controls.hidden = !controls.children.length;
redraw();

// --- tables ---------------------------------------------------------------------------------------------------------
/** The number with which a cell begins, or NaN: 1.23 ± 0.02 MB is 1 230 000. */
function numberOf(text) {
  const found = /^(?:NaN|([−-]?[\d.]+(?:e[+-]?\d+)?)(?: ± [\d.e+-]+)?(?: ([kMGT])(?:B|$))?)/.exec(text.trim());
  const factor = found && found[2] ? PREFIXES.find(([, prefix]) => prefix === found[2])[0] : 1;
  return found && found[1] ? Number(found[1].replace("−", "-")) * factor : NaN;
}

function sortBy(table, heading, place) {
  const down = heading.getAttribute("aria-sort") !== (place ? "descending" : "ascending");
  const way = (place === 0) === down ? "ascending" : "descending", sign = way === "ascending" ? 1 : -1;
  for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", way);
  const body = table.tBodies[0], rows = [...body.rows].map((row) => ({row, text: row.cells[place].textContent.trim()}));
  const numbers = rows.some(({text}) => !Number.isNaN(numberOf(text))) && place > 0;
  rows.sort((a, b) => {
    if (!numbers) return sign * a.text.localeCompare(b.text, "en", {numeric: true});
    const [one, two] = [numberOf(a.text), numberOf(b.text)];
    return Number.isNaN(one) - Number.isNaN(two) || (Number.isNaN(one) ? 0 : sign * (one - two)); // what has no value is last
  });
  body.append(...rows.map(({row}) => row));
}

for (const table of document.querySelectorAll("table")) {
  const headings = [...table.querySelectorAll("thead tr:last-child th")];
  if (table.tBodies[0].rows.length > 1)
    headings.forEach((heading, place) => {
      const button = element("button", {type: "button", title: "Sort by this column"}, ...heading.childNodes);
      heading.replaceChildren(button);
      button.addEventListener("click", () => sortBy(table, heading, place));
    });
  const section = table.closest("section"), before = table.parentElement.previousElementSibling;
  const title = before && before.matches("h2,h3,summary") ? before.textContent : section.querySelector("h2").textContent, name = fileName("table", title);
  table.parentElement.after(element("div", {class: "tools"}, tool("CSV", `Save the table ${title} as CSV`, () => save(`${name}.csv`, csv(tableRows(table)), "text/csv")),
    tool("SVG", `Save the table ${title} as SVG`, () => save(`${name}.svg`, tablePicture(table, title), "image/svg+xml"))));
}

// --- a run that goes on ---------------------------------------------------------------------------------------------
const live = document.querySelector("meta[name=live]");
if (live) {
  const seen = live.dataset.stamp, look = async () => {
    try {
      const now = await (await fetch("stamp", {cache: "no-store"})).text();
      if (now !== seen && !document.hidden) return location.reload();
    } catch {
      document.title = document.title.replace(/^(no answer: )?/, "no answer: ");
    }
    setTimeout(look, 1000 * Number(live.content));
  };
  setTimeout(look, 1000 * Number(live.content));
}
if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
