// Charts over time and of waits, as SVG drawn by hand, each with a table of its numbers.

const PANEL = { width: 360, height: 170, left: 46, right: 12, top: 8, bottom: 20 };

// A panel with axes. `lines`: {name, colour, at: [], values: [], dash, wide}; `said` tells a point to people.
function linePanel({ title, lines, top, unit, said, one = false, size = PANEL, from = 0, to = data.end }) {
  const { width: w, height: h, left, right, top: above, bottom } = size;
  const ticks = amountTicks(top), ceiling = ticks[ticks.length - 1] || 1;
  const x = (at) => left + ((at - from) / Math.max(1, to - from)) * (w - left - right);
  const y = (value) => above + (1 - Math.min(value, ceiling) / ceiling) * (h - above - bottom);
  const svg = make("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `${title}: ${unit} over time` });
  if (one) svg.append(make("rect", { x: left, y: y(1), width: w - left - right, height: y(0) - y(1), fill: "var(--below)" }));
  drawAxes(svg, { ticks, x, y, size, from, to });
  if (one) svg.append(make("line", { class: "one", x1: left, x2: w - right, y1: y(1), y2: y(1) }));
  for (const line of lines) {
    let path = "", open = false;
    line.values.forEach((value, i) => {
      if (value == null) { open = false; return; }
      path += `${open ? "L" : "M"}${x(line.at[i]).toFixed(1)} ${y(value).toFixed(1)}`;
      open = true;
    });
    svg.append(make("path", { d: path, fill: "none", stroke: line.colour, "stroke-width": line.wide ?? 1.8, "stroke-dasharray": line.dash, "stroke-linejoin": "round" }));
  }
  const cursor = make("line", { class: "cursor", y1: above, y2: h - bottom, visibility: "hidden" });
  svg.append(cursor);
  const words = make("div", { class: "said" }, said(lines[0].at.length - 1));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), at = from + ((((event.clientX - box.left) / box.width) * w - left) / (w - left - right)) * (to - from);
    let near = 0;
    lines[0].at.forEach((point, i) => { if (Math.abs(point - at) < Math.abs(lines[0].at[near] - at)) near = i; });
    cursor.setAttribute("x1", x(lines[0].at[near]));
    cursor.setAttribute("x2", x(lines[0].at[near]));
    cursor.setAttribute("visibility", "visible");
    words.textContent = said(near);
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    words.textContent = said(lines[0].at.length - 1);
  });
  return make("div", { class: "panel" }, typeof title === "string" ? make("h3", {}, title) : title, svg, words);
}

function drawAxes(svg, { ticks, x, y, size, from, to, amount = (value) => round(value, 2) }) {
  const { width: w, height: h, left, right, bottom, top: above } = size;
  if (data.start > from) svg.append(make("rect", { class: "warm", x: x(from), y: above, width: x(Math.min(to, data.start)) - x(from), height: h - above - bottom }));
  for (const tick of ticks) {
    svg.append(make("line", { class: "grid", x1: left, x2: w - right, y1: y(tick), y2: y(tick) }),
      make("text", { x: left - 5, y: y(tick) + 4, "text-anchor": "end" }, amount(tick)));
  }
  let until = left - 20;
  for (const tick of timeTicks(from, to, Math.floor((w - left - right) / 48))) {
    const half = tick.label.length * 3.1;
    if (x(tick.at) - half < until || x(tick.at) + half > w) continue;
    svg.append(make("text", { x: x(tick.at), y: h - 5, "text-anchor": "middle" }, tick.label));
    until = x(tick.at) + half + 6;
  }
  svg.append(make("line", { class: "axis", x1: left, x2: w - right, y1: h - bottom, y2: h - bottom }));
}

function section(id, title, note, ...children) {
  const made = make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), note ? make("p", { class: "note" }, note) : null, ...children);
  document.getElementById("charts").append(made);
  return made;
}

// Sums of a step series by days: [{at, value}].
function byDay(values) {
  const edges = data.series.edges, days = [];
  values.forEach((value, i) => {
    const day = Math.floor(edges[i] / DAY + 1e-9);
    days[day] = (days[day] ?? 0) + value;
  });
  return Array.from(days, (value) => value ?? 0);
}

function running(values) {
  let sum = 0;
  return [0, ...values.map((value) => (sum += value))];
}

function drawDelivered() {
  const { edges, owed, delivered, entitled } = data.series, state = { days: false };
  const panels = make("div", { class: "panels" });
  const dayEnds = byDay(owed[0] ?? []).map((_, day) => Math.min(data.end, (day + 1) * DAY));
  const fill = () => {
    panels.replaceChildren(...budgets.map((budget, i) => {
      const take = (values) => (state.days ? byDay(values) : running(values));
      const [due, got, share] = [owed[i], delivered[i], entitled[i]].map(take), at = state.days ? dayEnds : edges;
      const title = make("h3", {}, make("span", { class: "chip", style: `background:${hue(i)}` }), ` ${budget.path} `, make("small", { class: "note", style: "font-weight:400" }, `share ${percent(budget.share)}`));
      return linePanel({
        title, unit: "GPU-hours", top: Math.max(1, ...due, ...got), size: PANEL,
        lines: [{ name: "delivered", colour: hue(i), at, values: got, wide: 2.4 }, { name: "owed", colour: "var(--ink)", at, values: due, dash: "4 3", wide: 1.3 }],
        said: (p) => `${instant(at[p], { short: true })}: owed ${round(due[p], 0)}, delivered ${round(got[p], 0)} of a share of ${round(share[p], 0)} GPU-hours`,
      });
    }));
  };
  const choice = (days, text) => make("button", { type: "button", "aria-pressed": String(state.days === days), onclick: (event) => {
    state.days = days;
    for (const button of event.target.parentElement.children) button.setAttribute("aria-pressed", String(button === event.target));
    fill();
  } }, text);
  fill();
  const rows = budgets.flatMap((budget, i) => {
    const [due, got, share] = [owed[i], delivered[i], entitled[i]].map(byDay);
    return due.map((value, day) => [budget.path, day, share[day], value, got[day], value ? got[day] / value : null]);
  });
  section("delivered", "Owed against delivered",
    "Owed, hour by hour: the smaller of the budget's share of what was available and what its allocated jobs asked for (dashed). Delivered: what was charged (solid). More than owed was left over by others.",
    make("div", { class: "tools no-print" }, choice(false, "Summed up"), choice(true, "Per day")), panels,
    numbers(["budget", "day", "share, GPU-hours", "owed", "delivered", "delivered / owed"], rows, [null, 0, 0, 0, 0, 3]));
  return fill;
}

function drawRatios() {
  const { instants, ratio, behind } = data.series, panels = make("div", { class: "panels" });
  const begun = Math.max(data.start, data.end / 10);  // what the first hours are like says nothing of the rest
  const DASHES = [null, "6 3", "2 3", "9 3 2 3", "1 2", "12 4"];
  const fill = () => panels.replaceChildren(...teams.map((team) => {
    const own = budgets.map((_, i) => i).filter((i) => budgets[i].team === team);
    const top = Math.min(3, Math.max(1.5, ...own.flatMap((i) => ratio[i].filter((value, p) => value != null && instants[p] >= begun))));
    const key = own.map((i, n) => make("span", { class: "leaf" }, make("svg", { width: 22, height: 8, style: "width:22px;display:inline", "aria-hidden": "true" },
      make("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: hue(i), "stroke-width": 2.4, "stroke-dasharray": DASHES[n % DASHES.length] })), budgets[i].path.slice(team.length + 1) || team));
    const name = (i) => budgets[i].path.slice(team.length + 1) || team;
    return linePanel({
      title: make("h3", {}, team, " ", make("span", { class: "legend", style: "display:inline-flex;margin:0 0 0 .6rem" }, ...key)), unit: "ratio", one: true, top, size: { ...PANEL, width: 520, height: 190 },
      lines: own.map((i, n) => ({ colour: hue(i), at: instants, values: ratio[i], dash: DASHES[n % DASHES.length] })),
      said: (p) => `${instant(instants[p], { short: true })}: ${own.map((i) => `${name(i)} ${ratio[i][p] == null ? "–" : `${round(ratio[i][p], 2)} (${round(Math.abs(behind[i][p]), 0)} GPU-hours ${behind[i][p] > 0 ? "behind" : "ahead"})`}`).join(", ")}`,
    });
  }));
  panels.className = "panels wide";
  fill();
  const rows = budgets.flatMap((budget, i) => instants.map((at, p) => [budget.path, Math.round((at / DAY) * 100) / 100, ratio[i][p], Math.max(0, behind[i][p]), Math.max(0, -behind[i][p])]));
  section("ratio", "Ratio: who comes first",
    `(Charged in the last ${duration(data.lookback)} + what running jobs are still promised) / the share of that time. Below 1 = is owed time, and comes first (shaded); above 1 = has had more than its share, and comes later. The queue is sorted by this number.`,
    panels, numbers(["budget", "day", "ratio (below 1 = is owed time)", "GPU-hours behind", "GPU-hours ahead"], rows, [null, 2, 3, 1, 1]));
  return fill;
}

function drawParts() {
  const { part_edges: edges, parts } = data.series;
  const order = [["charged", "charged", "var(--accent)"], ["unallocated", "unallocated", "url(#open)"], ["lost", "lost to host faults", "var(--red)"],
    ["idle", "idle", "var(--faint)"], ["unavailable", "not available", "var(--grey)"]];
  const size = { ...PANEL, width: 1200, height: 260, right: 14 }, w = size.width;
  const lengths = edges.slice(1).map((edge, i) => (edge - edges[i]) / HOUR);
  const gpus = hosts.rows, x = (at) => size.left + (at / Math.max(1, data.end)) * (w - size.left - size.right);
  const y = (value) => size.top + (1 - Math.max(0, Math.min(value, gpus)) / Math.max(1, gpus)) * (size.height - size.top - size.bottom);
  const svg = make("svg", { viewBox: `0 0 ${w} ${size.height}`, role: "img", "aria-label": "What became of all GPUs over time, stacked" },
    make("defs", {}, make("pattern", { id: "open", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      make("rect", { width: 7, height: 7, fill: "var(--below)" }), make("line", { x1: 0, x2: 0, y1: 0, y2: 7, stroke: "var(--accent)", "stroke-width": 3 }))));
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => part * gpus);
  drawAxes(svg, { ticks, x, y, size, from: 0, to: data.end, amount: (value) => round(value, 0) });
  let base = lengths.map(() => 0);
  for (const [name, , fill] of order) {
    const next = base.map((value, i) => value + parts[name][i] / Math.max(1e-9, lengths[i]));
    const over = next.map((value, i) => `L${x(edges[i]).toFixed(1)} ${y(value).toFixed(1)}H${x(edges[i + 1]).toFixed(1)}`).join("");
    const under = base.map((value, i) => `L${x(edges[i + 1]).toFixed(1)} ${y(value).toFixed(1)}H${x(edges[i]).toFixed(1)}`).reverse().join("");
    if (parts[name].some((value) => value > 0)) svg.append(make("path", { d: `M${over.slice(1)}${under}Z`, fill }));
    base = next;
  }
  if (data.start > 0) svg.append(make("line", { class: "one", "stroke-dasharray": "5 4", x1: x(data.start), x2: x(data.start), y1: size.top, y2: size.height - size.bottom }));
  const key = make("div", { class: "legend" }, ...order.map(([name, text, fill]) => make("span", { class: "leaf" },
    make("span", { class: `chip${name === "unallocated" ? " hatched" : ""}`, style: `background-color:${name === "unallocated" ? "var(--accent)" : fill};border:1px solid var(--line)` }), text)));
  const daily = order.map(([name]) => {
    const days = [];
    parts[name].forEach((value, i) => { const day = Math.floor(edges[i] / DAY + 1e-9); days[day] = (days[day] ?? 0) + value; });
    return days;
  });
  const rows = daily[0].map((_, day) => {
    const own = daily.map((days) => days[day]), held = own[0] + own[1] + own[2];
    return [day, ...own, held + own[3] > 0 ? held / (held + own[3]) : null];
  });
  section("parts", "Occupancy and its parts", "Charged + unallocated + lost + idle + not available = all GPUs, at any time.", key, make("div", { class: "panel" }, svg),
    numbers(["day", ...order.map(([, text]) => `${text}, GPU-hours`), "occupied of what was available"], rows, [0, 0, 0, 1, 1, 1, 4]));
}
