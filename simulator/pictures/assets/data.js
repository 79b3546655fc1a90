"use strict";
// What pack.py packed, unpacked into typed arrays. Instants are in units of `data.unit_ms` since the log's t = 0.

const data = JSON.parse(document.getElementById("data").textContent);
const SECOND = 1000 / data.unit_ms, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

function sumUp(deltas) {
  const values = new Float64Array(deltas.length);
  let sum = 0;
  for (let i = 0; i < deltas.length; i++) values[i] = sum += deltas[i];
  return values;
}

const budgets = data.budgets;
const teams = [...new Set(budgets.map((budget) => budget.team))];
const jobs = { ...data.jobs, submitted: sumUp(data.jobs.submitted_delta) };

const runs = (() => {
  const packed = data.runs, count = packed.length.length;
  const start = sumUp(packed.start_delta), end = new Float64Array(count), guard = new Float64Array(count);
  const budget = new Uint16Array(count), gpus = new Uint32Array(count);
  for (let run = 0; run < count; run++) {
    end[run] = start[run] + packed.length[run];
    guard[run] = packed.charged[run] ? Math.min(end[run], start[run] + packed.guard[run]) : start[run];
    budget[run] = jobs.budget[packed.job[run]];
  }
  return { ...packed, count, start, end, guard, budget, gpus };
})();

// A span: neighbouring rows (GPUs) that a run holds.
const spans = (() => {
  const packed = data.spans, count = packed.row.length;
  const run = new Uint32Array(count);
  let span = 0;
  packed.n.forEach((n, index) => {
    for (let i = 0; i < n; i++, span++) {
      run[span] = index;
      runs.gpus[index] += packed.count[span];
    }
  });
  return { count, run, row: Uint32Array.from(packed.row), gpus: Uint32Array.from(packed.count) };
})();

const hosts = (() => {
  const first = new Uint32Array(data.hosts.gpus.length + 1);
  data.hosts.gpus.forEach((gpus, host) => { first[host + 1] = first[host] + gpus; });
  const rows = first[first.length - 1];
  const ofRow = new Uint32Array(rows);
  data.hosts.gpus.forEach((gpus, host) => ofRow.fill(host, first[host], first[host + 1]));
  return { names: data.hosts.names, gpus: data.hosts.gpus, count: data.hosts.gpus.length, first, rows, ofRow };
})();

// Where GPUs were not offered: {host, from, to, gpus missing}.
const outages = (() => {
  const offered = new Map(), found = [];
  const close = (host, to) => {
    const [from, gpus] = offered.get(host);
    if (gpus < hosts.gpus[host] && to > from) found.push({ host, from, to, gpus: hosts.gpus[host] - gpus });
  };
  data.capacity.at.forEach((at, i) => {
    const host = data.capacity.host[i];
    if (!offered.has(host)) offered.set(host, [0, 0]);
    close(host, at);
    offered.set(host, [at, data.capacity.gpus[i]]);
  });
  for (const host of offered.keys()) close(host, data.end);
  return found;
})();

// Words for people.
const round = (value, digits = 1) => value.toLocaleString("en", { maximumFractionDigits: digits });
const percent = (part) => (part == null ? "–" : `${round(part * 100, 1)} %`);

function duration(length) {
  const s = length / SECOND;
  if (s < 1) return s === 0 ? "0 s" : `${round(s, 3)} s`;
  if (s < 90) return `${round(s, 0)} s`;
  if (s < 3600) return `${round(s / 60, 1)} min`;
  if (s < 172800) return `${round(s / 3600, 1)} h`;
  return `${round(s / 86400, 1)} d`;
}

// A live log has real dates; a simulated one counts days from its start.
const dated = data.epoch_ms != null && data.epoch_ms > 1e11;
function instant(at, { short = false } = {}) {
  if (dated) {
    const text = new Date(data.epoch_ms + at * data.unit_ms).toISOString();
    return short ? text.slice(5, 10) : `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
  }
  const day = Math.floor(at / DAY), rest = at - day * DAY;
  if (short) return `day ${day}`;
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  return `day ${day}, ${two(rest / HOUR)}:${two((rest % HOUR) / MINUTE)}:${two((rest % MINUTE) / SECOND)}`;
}

// Ticks of a time axis: round steps, at most `most` of them.
function timeTicks(from, to, most) {
  const steps = [1, 5, 15, 30].map((n) => n * SECOND).concat([1, 5, 15, 30].map((n) => n * MINUTE),
    [1, 2, 6, 12].map((n) => n * HOUR), [1, 2, 5, 7, 14, 28, 91, 364].map((n) => n * DAY));
  const step = steps.find((length) => (to - from) / length <= most) ?? steps[steps.length - 1];
  const shift = dated ? (data.epoch_ms % 86400000) / data.unit_ms : 0;  // so that days begin at midnight
  const ticks = [];
  for (let at = Math.ceil((from + shift) / step) * step - shift; at <= to; at += step) {
    const midnight = Math.abs((at + shift) / DAY - Math.round((at + shift) / DAY)) < 1e-9;
    const full = instant(at), clock = full.slice(full.indexOf(dated ? " " : ", ") + (dated ? 1 : 2));
    ticks.push({ at, label: midnight || step >= DAY ? instant(at, { short: true }) : clock.slice(0, step < MINUTE ? 8 : 5) });
  }
  return ticks;
}

// Ticks of an axis of amounts, from 0 to at least `top`.
function amountTicks(top, most = 4) {
  const power = 10 ** Math.floor(Math.log10(Math.max(top, 1e-9) / most));
  const step = [1, 2, 5, 10].map((n) => n * power).find((length) => top / length <= most);
  return Array.from({ length: Math.ceil(top / step - 1e-9) + 1 }, (_, i) => i * step);
}

// Colours: a budget's own on the ground that is looked at.
const darkQuery = window.matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const isDark = () => darkQuery.matches && !printing;
const hue = (budget) => (isDark() ? budgets[budget].dark : budgets[budget].light);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Elements: `make("td", {class: "x"}, "text", child)`; text is never read as HTML.
const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set(["svg", "g", "path", "line", "rect", "text", "circle", "title", "defs", "pattern"]);
function make(name, attributes = {}, ...children) {
  const made = SVG_NAMES.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value != null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}
