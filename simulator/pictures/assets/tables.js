// Waits, stops, the numbers at the top, and tables that sort by a column.

function numbers(heads, rows, digits, { open = false } = {}) {
  const body = make("tbody");
  const fill = (sorted) => body.replaceChildren(...sorted.map((row) => make("tr", {}, ...row.map((value, i) =>
    make(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : {}, value == null ? "–" : typeof value === "number" ? round(value, digits[i] ?? 2) : value)))));
  const head = make("tr", {}, ...heads.map((text, i) => make("th", { scope: "col", "aria-sort": "none" }, make("button", { type: "button", onclick: (event) => {
    const cell = event.target.closest("th"), up = cell.getAttribute("aria-sort") === "descending" || (cell.getAttribute("aria-sort") === "none" && i === 0);
    for (const other of head.children) other.setAttribute("aria-sort", "none");
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    const order = (a, b) => (a[i] == null ? (b[i] == null ? 0 : -1) : b[i] == null ? 1 : typeof a[i] === "number" ? a[i] - b[i] : String(a[i]).localeCompare(String(b[i]), "en", { numeric: true }));
    fill([...rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
  } }, text))));
  const made = make("details", open ? { open: "" } : {}, make("summary", {}, `The numbers (${rows.length} ${rows.length === 1 ? "row" : "rows"})`),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": heads.join(", ") }, make("table", {}, make("thead", {}, head), body)));
  // Long tables are filled when they are opened, so that the page is there at once.
  let filled = false;
  const once = () => { if (!filled && made.open) { filled = true; fill(rows); } };
  made.addEventListener("toggle", once);
  window.addEventListener("beforeprint", () => { if (rows.length <= 120) { made.open = true; once(); } });
  once();
  return made;
}

const WAIT_HUES = [0, 1, 2, 3, 4, 5, 6, 7].map((n) => `var(--hue${n})`);
const DASHES_OF_WAITS = [null, "7 3", "2 3", "10 3 2 3"];
const WAIT_TICKS = [[1, "≤ 1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [6 * 3600, "6 h"], [86400, "1 d"], [7 * 86400, "7 d"], [28 * 86400, "28 d"]];

function drawWaits() {
  const classes = Object.entries(data.waits);
  if (!classes.length) return section("waits", "Waits", "No job was submitted in the time that is looked at.");
  const longest = Math.max(60, ...classes.map(([, wait]) => wait.p100));
  const size = { width: 1200, height: 320, left: 46, right: 150, top: 10, bottom: 22 };
  const most = Math.log10(longest * 1.05), x = (s) => size.left + (Math.log10(Math.max(1, s)) / most) * (size.width - size.left - size.right);
  const y = (part) => size.top + (1 - part) * (size.height - size.top - size.bottom);
  const svg = make("svg", { viewBox: `0 0 ${size.width} ${size.height}`, role: "img", "aria-label": "Part of the jobs that had started after a time, by class" });
  for (const part of [0, 0.25, 0.5, 0.75, 0.9, 1]) {
    svg.append(make("line", { class: "grid", x1: size.left, x2: size.width - size.right, y1: y(part), y2: y(part) }), make("text", { x: size.left - 5, y: y(part) + 4, "text-anchor": "end" }, percent(part)));
  }
  for (const [seconds, text] of WAIT_TICKS.filter(([s]) => s <= longest)) {
    svg.append(make("line", { class: "grid", x1: x(seconds), x2: x(seconds), y1: size.top, y2: y(0) }), make("text", { x: x(seconds), y: size.height - 5, "text-anchor": "middle" }, text));
  }
  const ends = [];
  classes.forEach(([name, wait], i) => {
    let path = `M${x(1)} ${y(0)}`, before = 0;
    wait.seconds.forEach((seconds, p) => {
      path += `L${x(seconds).toFixed(1)} ${y(before).toFixed(1)}L${x(seconds).toFixed(1)} ${y(wait.part[p]).toFixed(1)}`;
      before = wait.part[p];
    });
    const colour = WAIT_HUES[i % WAIT_HUES.length];
    svg.append(make("path", { d: path, fill: "none", stroke: colour, "stroke-width": name === "all" ? 3 : 1.8, "stroke-dasharray": DASHES_OF_WAITS[Math.floor(i / WAIT_HUES.length) % 4] },
      make("title", {}, name)));
    ends.push({ name, colour, dash: DASHES_OF_WAITS[Math.floor(i / WAIT_HUES.length) % 4] });
  });
  ends.forEach(({ name, colour, dash }, i) => {
    const at = size.top + 8 + i * Math.min(18, 290 / ends.length);
    svg.append(make("line", { x1: size.width - 138, x2: size.width - 112, y1: at, y2: at, stroke: colour, "stroke-width": 3, "stroke-dasharray": dash }),
      make("text", { class: "strong", x: size.width - 106, y: at + 4 }, name));
  });
  const rows = classes.map(([name, wait]) => [name, wait.n, wait.p50, wait.p90, wait.p99, wait.p100, `${[wait.p50, wait.p90, wait.p99, wait.p100].map((s) => duration(s * SECOND)).join(" · ")}`]);
  return section("waits", "Waits", "From submission to the first start. Part of the jobs (upwards) that had started after a time (to the right, each step ten times as long). Debug: protected jobs of at most 8 GPUs and 15 min; largest: jobs of at least a quarter of the GPUs.",
    make("div", { class: "panel" }, svg), numbers(["class", "jobs", "p50, s", "p90, s", "p99, s", "longest, s", "in words: p50 · p90 · p99 · longest"], rows, [null, 0, 1, 1, 1, 1], { open: true }));
}

function drawStops() {
  const most = Math.max(1e-9, ...data.stops.map((stop) => stop.lost + stop.restart)), often = Math.max(1, ...data.stops.map((stop) => stop.count));
  const bar = (part, fill) => make("span", { class: "bar", style: `width:${(part * 150).toFixed(1)}px;background:${fill}` });
  const rows = data.stops.map((stop) => make("tr", {}, make("th", { scope: "row" }, `${stop.label} (${stop.allocated ? "allocated" : "unallocated"})`),
    make("td", { style: "text-align:left" }, bar(stop.count / often, "var(--accent)"), ` ${round(stop.count, 0)}`),
    make("td", { style: "text-align:left" }, bar(stop.lost / most, "var(--red)"), bar(stop.restart / most, "var(--grey)"), ` ${round(stop.lost)} + ${round(stop.restart)}`)));
  section("stops", "Preemptions and what they cost", "Runs ended early, by cause, in the time that is measured. Lost: work that was not saved. Restarts: what the next runs spent on starting again.",
    rows.length ? make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "cause"), make("th", { scope: "col", style: "text-align:left" }, "runs"),
      make("th", { scope: "col", style: "text-align:left" }, "GPU-hours: lost + restarts"))), make("tbody", {}, ...rows))) : make("p", {}, "No run was ended early."),
    numbers(["cause", "of", "runs", "GPU-hours lost", "GPU-hours of restarts"], data.stops.map((stop) => [stop.label, stop.allocated ? "allocated" : "unallocated", stop.count, stop.lost, stop.restart]), [null, null, 0, 2, 2]));
}

// Who gains and who loses, where a log was replayed.
function drawGains() {
  const found = data.what_if;
  if (!found) return;
  const changed = found.compared_with === "replay";
  const note = changed ? `With ${found.changes.join(", ")}, beside the same time replayed unchanged. Delivered GPU-hours more (blue) or less (red).` : "The log replayed unchanged, beside what really happened: what the simulation leaves out.";
  for (const [id, title, rows] of [["gains-budgets", "Budgets: who gains and who loses", found.budgets], ["gains-users", "Users: who gains and who loses", found.users]]) {
    const most = Math.max(1e-9, ...rows.map((row) => Math.abs(row[4])));
    const bars = rows.filter((row) => Math.abs(row[4]) >= 0.05).slice(0, 40).map((row) => make("tr", {}, make("th", { scope: "row" }, row[0]),
      make("td", { style: "text-align:left" }, make("span", { class: "bar", style: `width:${((Math.abs(row[4]) / most) * 220).toFixed(1)}px;background:${row[4] > 0 ? "var(--accent)" : "var(--red)"}` }), ` ${row[4] > 0 ? "+" : "−"}${round(Math.abs(row[4]), 1)}`)));
    section(id, title, note, bars.length ? make("div", { class: "scroll" }, make("table", {}, make("tbody", {}, ...bars))) : make("p", {}, "Nobody gains or loses GPU-hours."),
      numbers(["name", "really", changed ? "unchanged" : "compared with", changed ? "changed" : "replayed", "change", "change of unallocated", "mean wait before, s", "mean wait after, s"], rows, [null, 1, 1, 1, 1, 1, 0, 0], { open: !bars.length }));
  }
}

function drawFigures() {
  const report = data.report, figures = document.getElementById("figures");
  const waits = data.waits, wait = (name) => (waits[name] ? duration(waits[name].p90 * SECOND) : "–");
  const { parts, part_edges: edges } = data.series, sum = (name) => parts[name].reduce((total, value, i) => total + (edges[i] >= data.start && edges[i] < data.stop ? value : 0), 0);
  const held = sum("charged") + sum("unallocated") + sum("lost"), offered = held + sum("idle");
  const shownFigures = [
    report.delivered_ratio != null ? ["delivered of owed", percent(report.delivered_ratio), `worst budget ${percent(report.delivered_worst)}`] : null,
    ["occupancy", percent(report.occupancy ?? (offered ? held / offered : null)), `${percent(held ? sum("unallocated") / held : null)} of it unallocated`],
    report.goodput != null ? ["goodput", percent(report.goodput), "work kept, of occupied"] : null,
    ["wait, all, p90", wait("all"), `median ${waits.all ? duration(waits.all.p50 * SECOND) : "–"}`],
    ["wait, debug, p90", wait("debug"), `${waits.debug?.n ?? 0} jobs`],
    ["wait, largest, p90", wait("largest"), `${waits.largest?.n ?? 0} jobs`],
    ["preemptions", round(data.stops.reduce((total, stop) => total + stop.count, 0), 0), `${round(data.stops.reduce((total, stop) => total + stop.lost, 0), 0)} GPU-hours lost`],
    report.violations != null ? ["broken promises", round(report.violations, 0), "of I1 to I10"] : null,
  ].filter(Boolean);
  figures.replaceChildren(...shownFigures.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, " ", make("small", {}, more)))));
  const measured = data.start > 0 || data.stop < data.end ? ` Measured: ${instant(data.start)} to ${instant(data.stop)}.` : "";
  document.getElementById("about").textContent = `${round(hosts.rows, 0)} GPUs on ${round(hosts.count, 0)} hosts, ${duration(data.end)}, ${round(jobs.ids.length, 0)} jobs in ${round(runs.count, 0)} runs${data.policy ? `, policy ${data.policy}` : ""}.${measured}`;
}
