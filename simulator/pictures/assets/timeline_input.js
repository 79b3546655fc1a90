// The timeline's hands: moving and zooming, what the pointer is on, a job that is looked for, budgets that stand out.

let drawn = 0;  // pictures drawn so far; tests wait for the next one
function redraw() {
  if (redraw.asked) return;
  redraw.asked = true;
  requestAnimationFrame(() => {
    redraw.asked = false;
    draw();
    drawn++;
    canvas.dataset.drawn = drawn;
    canvas.dataset.detail = asBars() ? "bars" : "bands";
    const seen = `${hosts.ofRow[Math.max(0, Math.floor(view.r0))]}`, host0 = hosts.names[seen] ?? "";
    const host1 = hosts.names[hosts.ofRow[Math.min(hosts.rows, Math.ceil(view.r1)) - 1]] ?? "";
    document.getElementById("range").textContent =
      `${instant(view.t0)} – ${instant(view.t1)} · ${host0} – ${host1} · ${asBars() ? "a bar a run" : `bands of ${hostsInABand()} hosts`}`;
  });
}

// Sees [t0, t1] x [r0, r1], kept inside the log and the hosts, and not nearer than 20 s and 4 GPUs.
function look(t0, t1, r0, r1) {
  const clamp = (from, to, least, most) => {
    const length = Math.min(Math.max(to - from, Math.min(least, most)), most);
    const middle = (from + to) / 2, begin = Math.min(Math.max(middle - length / 2, 0), most - length);
    return [begin, begin + length];
  };
  [view.t0, view.t1] = clamp(t0, t1, 20 * SECOND, Math.max(1, data.end));
  [view.r0, view.r1] = clamp(r0, r1, 4, Math.max(1, hosts.rows));
  redraw();
}

function zoom({ time = 1, rows = 1, at = (view.t0 + view.t1) / 2, row = (view.r0 + view.r1) / 2 }) {
  look(at - (at - view.t0) * time, at + (view.t1 - at) * time, row - (row - view.r0) * rows, row + (view.r1 - row) * rows);
}

function move(times, rows) {
  const t = (view.t1 - view.t0) * times, r = (view.r1 - view.r0) * rows;
  look(view.t0 + t, view.t1 + t, view.r0 + r, view.r1 + r);
}

const whole = () => look(0, data.end, 0, hosts.rows);
const ACTIONS = {
  "whole": whole,
  "time-in": () => zoom({ time: 0.5 }),
  "time-out": () => zoom({ time: 2 }),
  "hosts-in": () => zoom({ rows: 0.5 }),
  "hosts-out": () => zoom({ rows: 2 }),
};
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", ACTIONS[button.dataset.do]);

const KEYS = {
  ArrowLeft: () => move(-0.15, 0), ArrowRight: () => move(0.15, 0),
  ArrowUp: (shift) => (shift ? zoom({ rows: 0.7 }) : move(0, -0.15)), ArrowDown: (shift) => (shift ? zoom({ rows: 1 / 0.7 }) : move(0, 0.15)),
  "+": () => zoom({ time: 0.7 }), "=": () => zoom({ time: 0.7 }), "-": () => zoom({ time: 1 / 0.7 }), "_": () => zoom({ time: 1 / 0.7 }),
  Home: whole, Escape: () => choose(null),
};
canvas.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act(event.shiftKey);
});

canvas.addEventListener("wheel", (event) => {
  const wanted = event.ctrlKey || event.metaKey || document.activeElement === canvas;
  if (!wanted) return;
  event.preventDefault();
  const amount = Math.exp(Math.max(-0.6, Math.min(0.6, (event.deltaY || event.deltaX) * 0.0022)));
  const at = atOf(event.offsetX), row = rowOf(event.offsetY);
  zoom(event.shiftKey ? { rows: amount, at, row } : { time: amount, at, row });
}, { passive: false });

let grabbed = null;
canvas.addEventListener("pointerdown", (event) => {
  canvas.focus({ preventScroll: true });
  canvas.setPointerCapture(event.pointerId);
  grabbed = { x: event.offsetX, y: event.offsetY, lastX: event.offsetX, lastY: event.offsetY, box: event.shiftKey, moved: false };
});
canvas.addEventListener("pointermove", (event) => {
  if (!grabbed) return showTip(event.offsetX, event.offsetY);
  const { offsetX: x, offsetY: y } = event;
  if (Math.hypot(x - grabbed.x, y - grabbed.y) > 4) grabbed.moved = true;
  if (!grabbed.moved) return;
  hideTip();
  if (grabbed.box) {
    draw();
    context.fillStyle = mixAlpha(fills.ink, 0.15);
    context.fillRect(grabbed.x, grabbed.y, x - grabbed.x, y - grabbed.y);
  } else {
    move((grabbed.lastX - x) / (width - GUTTER), (grabbed.lastY - y) / (height - FOOT));
    [grabbed.lastX, grabbed.lastY] = [x, y];
  }
});
canvas.addEventListener("pointerup", (event) => {
  const was = grabbed;
  grabbed = null;
  if (!was) return;
  if (!was.moved) {
    const run = asBars() ? runAt(atOf(event.offsetX), rowOf(event.offsetY)) : -1;
    choose(run < 0 ? null : run);
  } else if (was.box) {
    const [x0, x1] = [was.x, event.offsetX].sort((a, b) => a - b), [y0, y1] = [was.y, event.offsetY].sort((a, b) => a - b);
    look(atOf(x0), atOf(x1), rowOf(y0), rowOf(y1));
  }
});
canvas.addEventListener("pointercancel", () => { grabbed = null; });
canvas.addEventListener("pointerleave", hideTip);
canvas.addEventListener("dblclick", (event) => zoom({ time: 0.35, rows: 0.35, at: atOf(event.offsetX), row: rowOf(event.offsetY) }));

// --- what is under the pointer ---

function runAt(at, row) {
  const gpu = Math.floor(row), near = ((view.t1 - view.t0) / width) * 2;
  let best = -1, distance = Infinity;
  for (let span = 0; span < spans.count; span++) {
    if (gpu < spans.row[span] || gpu >= spans.row[span] + spans.gpus[span]) continue;
    const run = spans.run[span], off = Math.max(runs.start[run] - at, at - runs.end[run], 0);
    if (off <= near && off < distance) [best, distance] = [run, off];
    if (distance === 0) break;
  }
  return best;
}

const tip = document.getElementById("tip");
function hideTip() { tip.hidden = true; }

function showTip(x, y) {
  const at = atOf(x), row = rowOf(y);
  if (x < GUTTER || y > height - FOOT || row >= hosts.rows || at > data.end) return hideTip();
  tip.replaceChildren(...(asBars() ? tipOfRun(at, row) : tipOfBand(at, row)));
  tip.hidden = false;
  const left = x + 16 + tip.offsetWidth > width ? x - tip.offsetWidth - 12 : x + 16;
  tip.style.left = `${Math.max(0, left)}px`;
  tip.style.top = `${Math.max(0, Math.min(y + 12, height - tip.offsetHeight - 4))}px`;
}

function tipOfRun(at, row) {
  const host = hosts.ofRow[Math.floor(row)], gpu = Math.floor(row) - hosts.first[host], run = runAt(at, row);
  const where = `${hosts.names[host]}, GPU ${gpu} · ${instant(at)}`;
  if (run >= 0) return [make("div", {}, where), factsOf(run)];
  const out = outages.some((outage) => outage.host === host && outage.from <= at && at < outage.to);
  return [make("div", {}, where), make("div", {}, out ? "not available" : "idle")];
}

function tipOfBand(at, row) {
  if (!bands) return [];
  const host = hosts.ofRow[Math.floor(row)], band = Math.floor(host / bands.many) - bands.first;
  const column = Math.min(bands.columns - 1, Math.max(0, Math.floor(((at - view.t0) / (view.t1 - view.t0)) * bands.columns)));
  const value = (kind) => bands.sums[(band * bands.kinds + kind) * bands.line + column];
  const rows = [];
  for (let category = 0; category < categories; category++) {
    const safe = value(category), open = value(categories + category);
    if (safe + open < 0.05) continue;
    const budget = budgets[categoryOf.indexOf(category)];
    rows.push({ sum: safe + open, cells: [
      make("span", { class: "chip", style: `background:${hue(categoryOf.indexOf(category))}` }), " ", byTeam ? budget.team : budget.path,
      `${round(safe + open)} GPUs${open > 0.05 ? `, ${round(open)} may be interrupted` : ""}`] });
  }
  rows.sort((a, b) => b.sum - a.sum);
  const last = Math.min(hosts.count, (bands.first + band + 1) * bands.many) - 1;
  const names = `${hosts.names[(bands.first + band) * bands.many]} – ${hosts.names[last]}`;
  const table = make("table", {}, ...rows.slice(0, 12).map(({ cells }) =>
    make("tr", {}, make("td", {}, ...cells.slice(0, 3)), make("td", {}, cells[3]))));
  const missing = value(bands.kinds - 1);
  return [make("div", {}, `${names} · ${instant(at)}`), table,
    missing > 0.05 ? make("div", {}, `${round(missing)} GPUs not available`) : null].filter(Boolean);
}

// Everything the log says of a run, as rows of name and value.
function factsOf(run) {
  const job = runs.job[run], seconds = (length) => duration(length);
  const contract = jobs.min_runtime[job]
    ? `at least ${seconds(jobs.min_runtime[job])}, ${jobs.resumable[job] ? "resumable" : "not resumable"}`
    : `unallocated${jobs.resumable[job] ? ", resumable" : ""}`;
  const reason = runs.reasons[runs.why[run]], numbers = runs.numbers[run];
  const said = numbers ? reason.keys.map((key, i) => `${key.replaceAll("_", " ")} ${numbers[i]}`).join(", ") : "";
  const cause = runs.causes[runs.cause[run]], by = runs.names[runs.by[run]];
  const rows = [
    ["job", `${jobs.ids[job]}, run ${runs.number[run]}`],
    ["budget", jobs.users[jobs.user[job]] ? `${budgets[runs.budget[run]].path}, ${jobs.users[jobs.user[job]]}` : budgets[runs.budget[run]].path],
    ["holds", `${runs.gpus[run]} GPUs for ${duration(runs.end[run] - runs.start[run])}`],
    ["from", instant(runs.start[run])],
    [cause === "running" ? "still there" : "to", instant(runs.end[run])],
    ["contract", jobs.priority[job] ? `${contract}, priority ${jobs.priority[job]}` : contract],
    ["protected", data.runs.charged[run] && data.runs.guard[run] ? `until ${instant(runs.start[run] + data.runs.guard[run])}` : "never"],
    ["end", `${cause.replace("_", " ")}${by ? ` by ${by}` : ""}`],
    reason && reason.reason && cause !== "running" ? ["because", `${reason.reason.replaceAll("_", " ")} (${reason.rule})${said ? `: ${said}` : ""}`] : null,
  ].filter(Boolean);
  return make("table", {}, ...rows.map(([name, value]) => make("tr", {}, make("td", {}, name), make("td", {}, value))));
}

const details = document.getElementById("details");
function choose(run) {
  shown.job = run == null ? null : runs.job[run];
  details.hidden = run == null;
  if (run != null) {
    const all = [];
    for (let other = 0; other < runs.count; other++) if (runs.job[other] === shown.job) all.push(other);
    const list = all.slice(0, 60).map((other) => make("button", { type: "button", "aria-pressed": String(other === run), onclick: () => goTo(other) },
      `run ${runs.number[other]}: ${runs.causes[runs.cause[other]].replace("_", " ")}`));
    details.replaceChildren(factsOf(run), make("div", { class: "tools" }, ...list));
  }
  redraw();
}

// Sees a run from near, with some room around it.
function goTo(run) {
  const span = spans.run.indexOf(run), middle = spans.row[span] + spans.gpus[span] / 2;
  const rows = Math.min(Math.max(24, spans.gpus[span] * 1.4), (height - FOOT) / (BAR_ROW + 0.5));
  const around = Math.max(10 * MINUTE, (runs.end[run] - runs.start[run]) * 0.6);
  look(runs.start[run] - around, runs.end[run] + around, middle - rows / 2, middle + rows / 2);
  choose(run);
}

const find = document.getElementById("find");
find.addEventListener("change", () => {
  const job = jobs.ids.indexOf(find.value.trim()), run = job < 0 ? -1 : runs.job.indexOf(job);
  find.setCustomValidity(!find.value || run >= 0 ? "" : job < 0 ? "There is no such job in this log." : "This job never started.");
  find.reportValidity();
  if (run >= 0) goTo(run);
});

function drawLegend() {
  const legend = document.getElementById("legend");
  const signs = [["chip", "protected", ""], ["chip hatched", "may be interrupted", ""], ["chip edge", "preempted here", "none"], ["chip edge lost", "host lost here", "none"]].map(([kind, text, fill]) =>
    make("span", { class: "leaf" }, make("span", { class: kind, style: fill === "" ? "background-color:var(--grey)" : "" }), text));
  const groups = teams.map((team) => {
    const own = budgets.map((budget, index) => ({ ...budget, index })).filter((budget) => budget.team === team);
    const press = () => {
      shown.team = shown.team === team ? null : team;
      fills = null;
      drawLegend();
      redraw();
    };
    return make("span", { class: "team" },
      make("button", { type: "button", "aria-pressed": String(shown.team === team), onclick: press, title: "Let it stand out" }, team),
      ...own.map((budget) => make("span", { class: "leaf" }, make("span", { class: "chip", style: `background:${hue(budget.index)}` }),
        budget.path === team ? null : budget.path.slice(team.length + 1))));
  });
  legend.replaceChildren(...groups, ...signs);
}
