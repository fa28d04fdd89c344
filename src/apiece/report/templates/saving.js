// Figures and tables as files: values as CSV, pictures as SVG.
function save(name, text, type) {
  const link = element("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const fileName = (...words) => words.join(" ").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80) || "figure";

/** Rows as CSV; a text that a spreadsheet would take for a formula begins with an apostrophe. */
function csv(rows) {
  const cell = (value) => {
    const text = value == null ? "" : String(value), safe = /^[=+@\t\r-]/.test(text) && !Number.isFinite(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/** All numbers of a chart, whatever of it is hidden. */
function chartRows(chart, title) {
  const value = `${title}${chart.unit ? ` (${chart.unit})` : ""}`;
  if (chart.kind === "split") return [["client", "class", "samples"], ...chart.counts.flatMap((own, i) => own.map((n, k) => [chart.names[i], chart.classes[k] ?? k, n]))];
  if (chart.kind === "clients") return [["line", "client", "share (%)", value], ...chart.lines.flatMap((l) => l.xs.map((x, i) => [l.name, l.names[i], x, l.ys[i]]))];
  if (chart.kind === "spread") return [["line", "lowest", "lower quartile", "median", "upper quartile", "highest"], ...chart.lines.map((l) => [l.name, ...l.values])];
  if (chart.kind === "dots") return [["line", "seed", value], ...chart.lines.flatMap((l) => l.values.map((v, i) => [l.name, i + 1, v]))];
  const rows = chart.lines.flatMap((line) => line.runs.flatMap(([at, places, values]) => {
    const run = DATA.runs[at], so_far = (name, i) => (run[name] ? run[name][i] : null);
    return values.map((v, n) => [places ? places[n] : n, v]).map(([i, v]) => [line.name, run.name, run.round[i], so_far("bytes", i), so_far("seconds", i), v]);
  }));
  return [["line", "seed", "round", "bytes", "seconds", value], ...rows];
}

/** A table's cells as text, heading first. */
function tableRows(table) {
  const text = (cell) => [...(cell.querySelector("button") || cell).childNodes].map((node) => node.textContent.trim()).filter(Boolean).join(" ");
  return [...table.querySelectorAll("thead tr:last-child, tbody tr")].map((row) => [...row.cells].map(text));
}

/** An SVG of the page as a file of its own: in the light colors, with title and legend. */
function picture(svg, title, looks) {
  const copy = svg.cloneNode(true), [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const top = 26, legend = shape("g", {transform: `translate(0 ${height})`});
  let x = 10, y = 12;
  for (const {name, color, dashes} of looks) {
    const wide = 34 + 6.4 * name.length;
    if (x > 10 && x + wide > width) [x, y] = [10, y + 18];
    legend.append(shape("line", {x1: x, x2: x + 22, y1: y, y2: y, stroke: color, "stroke-width": 2, "stroke-dasharray": dashes || null}), label(x + 28, y + 4, name, {fill: "var(--ink)"}));
    x += wide;
  }
  copy.append(label(4, -10, title, {fill: "var(--ink)", "font-size": 13, "font-weight": 600}), legend);
  const whole = height + top + (looks.length ? y + 12 : 0);
  filled(copy, {xmlns: SVG, "xmlns:xlink": "http://www.w3.org/1999/xlink", viewBox: `0 ${-top} ${width} ${whole}`, width, height: whole, "font-family": "Helvetica, Arial, sans-serif"}, []);
  for (const name of ["hidden", "aria-hidden", "aria-labelledby"]) copy.removeAttribute(name);
  return new XMLSerializer().serializeToString(copy).replace(/var\(--(\w+)\)/g, (_, name) => lightColor(name));
}

/** A table as a picture. */
function tablePicture(table, title) {
  const rows = tableRows(table), widths = rows[0].map((_, i) => 14 + 6.6 * Math.max(...rows.map((row) => (row[i] || "").length)));
  const starts = widths.map((_, i) => sum(widths.slice(0, i)) + 8), height = 20 * rows.length + 10;
  const svg = shape("svg", {viewBox: `0 0 ${sum(widths) + 16} ${height}`});
  rows.forEach((row, r) => row.forEach((text, i) => {
    const end = i ? {"text-anchor": "end"} : {}, x = i ? starts[i] + widths[i] - 8 : starts[i];
    svg.append(label(x, 20 * r + 16, text, {fill: "var(--ink)", ...end, ...(r ? {} : {"font-weight": 600})}));
  }));
  svg.append(shape("line", {x1: 8, x2: sum(widths) + 8, y1: 23, y2: 23, stroke: "var(--muted)"}));
  return picture(svg, title, []);
}

/** A color of the light page, as its style begins with them. */
function lightColor(name) {
  const found = new RegExp(`--${name}:(#[0-9a-f]+)`).exec(document.querySelector("style").textContent);
  return found ? found[1] : "#24292f";
}
