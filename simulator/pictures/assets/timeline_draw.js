// The timeline's drawing: bands of hosts from afar, a bar a run from near. `view` is what is seen: instants t0..t1, rows r0..r1.

const GUTTER = 92, FOOT = 24, BAR_ROW = 3, BAND_HEIGHT = 56, LEAVES_MAX = 40;
const canvas = document.getElementById("timeline");
const context = canvas.getContext("2d");
const view = { t0: 0, t1: Math.max(1, data.end), r0: 0, r1: Math.max(1, hosts.rows) };
const shown = { team: null, job: null };  // what stands out; null: everything
let width = 0, height = 0;

const xOf = (at) => GUTTER + ((at - view.t0) / (view.t1 - view.t0)) * (width - GUTTER);
const yOf = (row) => ((row - view.r0) / (view.r1 - view.r0)) * (height - FOOT);
const atOf = (x) => view.t0 + ((x - GUTTER) / (width - GUTTER)) * (view.t1 - view.t0);
const rowOf = (y) => view.r0 + (y / (height - FOOT)) * (view.r1 - view.r0);
const rowHeight = () => (height - FOOT) / (view.r1 - view.r0);
const asBars = () => rowHeight() >= BAR_ROW;

// Fills of this theme: of each category (a leaf, or a team where there are many leaves) solid, pale and hatched.
let fills = null;
const byTeam = budgets.length > LEAVES_MAX;
const categoryOf = budgets.map((budget, index) => (byTeam ? teams.indexOf(budget.team) : index));
const categories = byTeam ? teams.length : budgets.length;

function mix(colour, ground, part) {
  const bytes = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  const [a, b] = [bytes(colour), bytes(ground)];
  return "#" + a.map((value, i) => Math.round(value * part + b[i] * (1 - part)).toString(16).padStart(2, "0")).join("");
}

function hatch(pale, line, step) {
  const scale = Math.max(1, Math.round(window.devicePixelRatio || 1));
  const tile = document.createElement("canvas");
  tile.width = tile.height = step * scale;
  const pen = tile.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = pale;
  pen.fillRect(0, 0, step, step);
  pen.strokeStyle = line;
  pen.lineWidth = step / 4.5;
  pen.lineCap = "square";
  pen.beginPath();
  for (const shift of [-step, 0, step]) { pen.moveTo(shift, step); pen.lineTo(shift + step, 0); }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}

function makeFills() {
  const ground = css("--ground"), grey = css("--grey"), faint = css("--faint");
  const of = (colour) => ({ solid: colour, pale: mix(colour, ground, 0.5), hatched: hatch(mix(colour, ground, 0.38), mix(colour, ground, 0.9), 7) });
  const dim = of(mix(grey, ground, 0.45));
  const made = [];
  for (let category = 0; category < categories; category++) {
    const budget = categoryOf.indexOf(category);
    made.push(shown.team == null || budgets[budget].team === shown.team ? of(hue(budget)) : dim);
  }
  return { made, ground, grey, faint, ink: css("--ink"), soft: css("--soft"), line: css("--line"), red: css("--red"),
    unavailable: hatch(faint, mix(grey, ground, 0.75), 5) };
}

function draw() {
  const scale = window.devicePixelRatio || 1;
  width = canvas.clientWidth;
  height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  fills ??= makeFills();
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.fillStyle = fills.ground;
  context.fillRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER, height - FOOT);
  context.clip();
  if (asBars()) drawBars(); else drawBands();
  drawWarmUp();
  context.restore();
  drawHosts();
  drawTime();
}

// --- near: every run a bar ---

function drawBars() {
  const row = rowHeight(), gap = row >= 7 ? 1 : 0;
  for (const outage of outages) {
    const x = xOf(outage.from), y = yOf(hosts.first[outage.host]);
    context.fillStyle = fills.unavailable;
    context.fillRect(x, y, xOf(outage.to) - x, hosts.gpus[outage.host] * row);
  }
  context.fillStyle = fills.line;
  for (let host = 0; host < hosts.count; host++) context.fillRect(GUTTER, yOf(hosts.first[host]) - 0.5, width, 1);
  const edges = [], labels = [];
  for (let span = 0; span < spans.count; span++) {
    const run = spans.run[span], first = spans.row[span], last = first + spans.gpus[span];
    if (runs.end[run] < view.t0 || runs.start[run] > view.t1 || last < view.r0 || first > view.r1) continue;
    const fill = fills.made[categoryOf[runs.budget[run]]];
    const x0 = Math.max(xOf(runs.start[run]), GUTTER - 4), x1 = Math.min(xOf(runs.end[run]), width + 4);
    const xg = Math.min(Math.max(xOf(runs.guard[run]), x0), x1);
    const y = yOf(first), tall = spans.gpus[span] * row - gap, wide = x1 - x0;
    const rim = wide > 5 ? 0.6 : 0;  // neighbours in time stay apart
    context.fillStyle = fill.solid;
    context.fillRect(x0, y, xg - x0 - (xg === x1 ? rim : 0), tall);
    if (xg < x1) {
      context.fillStyle = x1 - xg >= 3 && tall >= 5 ? fill.hatched : fill.pale;
      context.fillRect(xg, y, x1 - xg - rim, tall);
    }
    const cause = runs.causes[runs.cause[run]];
    if (cause === "preempted" || cause === "drained" || cause === "host_lost") edges.push(x1, y, wide, tall, cause === "host_lost");
    if (shown.job === runs.job[run]) labels.push(x0, y, wide, tall);
    else if (wide > 60) {
      const above = Math.max(0, y), below = Math.min(height - FOOT, y + tall);  // the name stands where the bar is seen
      if (below - above >= 11) drawName(run, x0, above, wide, below - above, xg - Math.max(x0, GUTTER) < 20 ? fill.pale : fill.solid);
    }
  }
  for (let i = 0; i < edges.length; i += 5) {
    const [x, y, wide, tall, lost] = edges.slice(i, i + 5), thick = Math.min(3, Math.max(0.6, wide * 0.3));
    context.fillStyle = lost ? fills.ink : fills.red;
    context.fillRect(x - thick, y, thick, tall);
  }
  context.strokeStyle = fills.ink;
  context.lineWidth = 2;
  for (let i = 0; i < labels.length; i += 4) context.strokeRect(labels[i], labels[i + 1], Math.max(2, labels[i + 2]), labels[i + 3]);
}

function drawName(run, x, y, wide, tall, ground) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(ground.slice(i, i + 2), 16));
  const text = `${jobs.ids[runs.job[run]]}`, left = Math.max(x, GUTTER) + 4;
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  const room = x + wide - left - 6, needed = context.measureText(text).width;
  if (needed > room) return;
  const dark = r * 0.299 + g * 0.587 + b * 0.114 > 140;
  context.textBaseline = "middle";
  context.fillStyle = ground;
  context.fillRect(left - 2, y + tall / 2 - 6, needed + 4, 12);
  context.fillStyle = dark ? "#000" : "#fff";
  context.fillText(text, left, y + tall / 2);
}

// --- afar: bands of hosts, occupancy by budget stacked in each ---

let bands = null;  // what was summed for the picture that is seen now, for the tip

function hostsInABand() {
  const host = (hosts.rows / Math.max(1, hosts.count)) * rowHeight();
  let many = 1;
  while (many * host < BAND_HEIGHT && many < hosts.count) many *= 2;
  return many;
}

function sumBands() {
  const many = hostsInABand(), step = 3, columns = Math.max(1, Math.ceil((width - GUTTER) / step));
  const host0 = hosts.ofRow[Math.max(0, Math.floor(view.r0))], host1 = hosts.ofRow[Math.min(hosts.rows, Math.ceil(view.r1)) - 1];
  const first = Math.floor(host0 / many), count = Math.floor(host1 / many) - first + 1;
  const kinds = categories * 2 + 1, line = columns + 2;
  const sums = new Float32Array(count * kinds * line), stops = new Float32Array(count * line);
  const perUnit = columns / (view.t1 - view.t0);
  const rowsOf = Array.from({ length: count + 1 }, (_, i) => hosts.first[Math.min(hosts.count, (first + i) * many)]);
  // Differences from column to column, with what the first and the last one are filled to.
  const add = (offset, from, to, gpus) => {
    const a = Math.max(0, (from - view.t0) * perUnit), b = Math.min(columns, (to - view.t0) * perUnit);
    if (b <= a) return;
    const i = Math.floor(a), j = Math.floor(b), left = i + 1 - a, right = b - j;
    if (i === j) {
      sums[offset + i] += gpus * (b - a);
      sums[offset + i + 1] -= gpus * (b - a);
    } else {
      sums[offset + i] += gpus * left;
      sums[offset + i + 1] += gpus * (1 - left);
      sums[offset + j] -= gpus * (1 - right);
      sums[offset + j + 1] -= gpus * right;
    }
  };
  const bandOf = (row) => Math.floor(hosts.ofRow[row] / many) - first;
  for (let span = 0; span < spans.count; span++) {
    const run = spans.run[span];
    if (runs.end[run] < view.t0 || runs.start[run] > view.t1) continue;
    const row0 = spans.row[span], row1 = row0 + spans.gpus[span], category = categoryOf[runs.budget[run]];
    if (row1 <= rowsOf[0] || row0 >= rowsOf[count]) continue;
    const cause = runs.cause[run], stopped = cause === 3 || cause === 4 || cause === 5;
    const last = Math.min(count - 1, bandOf(row1 - 1));
    for (let band = Math.max(0, bandOf(row0)); band <= last; band++) {
      const gpus = Math.min(row1, rowsOf[band + 1]) - Math.max(row0, rowsOf[band]);
      if (runs.guard[run] > runs.start[run]) add((band * kinds + category) * line, runs.start[run], runs.guard[run], gpus);
      if (runs.end[run] > runs.guard[run]) add((band * kinds + categories + category) * line, runs.guard[run], runs.end[run], gpus);
      if (stopped && runs.end[run] >= view.t0 && runs.end[run] <= view.t1) {
        stops[band * line + Math.min(columns - 1, Math.floor((runs.end[run] - view.t0) * perUnit))] += gpus;
      }
    }
  }
  for (const outage of outages) {
    const band = Math.floor(outage.host / many) - first;
    if (band >= 0 && band < count) add((band * kinds + kinds - 1) * line, outage.from, outage.to, outage.gpus);
  }
  for (let offset = 0; offset < sums.length; offset += line) {
    for (let i = 1; i < line; i++) sums[offset + i] += sums[offset + i - 1];
  }
  return { many, step, columns, first, count, kinds, line, sums, stops, rowsOf };
}

// Written pixel by pixel: thousands of small areas, many of them hatched, are slow as shapes.
function drawBands() {
  bands = sumBands();
  const scale = canvas.width / width, { step, columns, count, kinds, line, sums, stops, rowsOf } = bands;
  const wide = Math.round((width - GUTTER) * scale), tall = Math.round((height - FOOT) * scale);
  if (wide < 1 || tall < 1) return;
  if (!drawBands.image || drawBands.image.width !== wide || drawBands.image.height !== tall) drawBands.image = new ImageData(wide, tall);
  const pixels = new Uint32Array(drawBands.image.data.buffer), inks = makeInks();
  pixels.fill(inks.ground);
  const stripe = Math.round(7 * scale), thick = Math.max(1, Math.round(1.6 * scale));
  // Fills columns x0..x1 from row y0 to row y1.
  const area = (x0, x1, y0, y1, ink) => {
    for (let y = Math.max(0, y0); y < Math.min(tall, y1); y++) {
      for (let x = x0; x < x1; x++) pixels[y * wide + x] = (x + y) % stripe < thick ? ink[1] : ink[0];
    }
  };
  for (let band = 0; band < count; band++) {
    const top = Math.round((yOf(rowsOf[band]) + 1) * scale), bottom = Math.round((yOf(rowsOf[band + 1]) - 2) * scale);
    const size = rowsOf[band + 1] - rowsOf[band], each = (bottom - top) / size;
    for (let column = 0; column < columns; column++) {
      const x0 = Math.round(column * step * scale), x1 = Math.min(wide, Math.round((column + 1) * step * scale));
      let held = 0;
      for (let kind = 0; kind < kinds; kind++) {
        const gpus = Math.min(sums[(band * kinds + kind) * line + column], size - held);
        if (gpus < 1e-3) continue;
        area(x0, x1, Math.round(bottom - (held + gpus) * each), Math.round(bottom - held * each), inks.kinds[kind]);
        held += gpus;
      }
      area(x0, x1, top, Math.round(bottom - held * each), inks.idle);
      const stopped = stops[band * line + column];
      if (stopped) area(x0, x1, top, top + Math.round((1.5 + 3.5 * Math.min(1, stopped / size)) * scale), inks.red);
    }
  }
  context.putImageData(drawBands.image, Math.round(GUTTER * scale), 0);
}

// Pairs of pixels, between stripes and in them, for each kind of area.
function makeInks() {
  const pixel = (colour) => {
    const [red, green, blue] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;  // as the bytes of an image lie in memory
  };
  const plain = (colour) => [pixel(colour), pixel(colour)];
  const solid = fills.made.map((fill) => plain(fill.solid));
  const open = fills.made.map((fill) => [pixel(mix(fill.solid, fills.ground, 0.36)), pixel(mix(fill.solid, fills.ground, 0.7))]);
  const missing = [pixel(fills.faint), pixel(mix(fills.grey, fills.ground, 0.75))];
  return { kinds: [...solid, ...open, missing], ground: pixel(fills.ground), idle: plain(fills.faint), red: plain(fills.red) };
}

// --- around: warm-up, names of hosts, time ---

function drawWarmUp() {
  if (data.start <= view.t0) return;
  const x = Math.min(width, xOf(data.start));
  context.fillStyle = mixAlpha(fills.ground, 0.45);
  context.fillRect(GUTTER, 0, x - GUTTER, height - FOOT);
  context.strokeStyle = fills.ink;
  context.lineWidth = 1;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(x, 0);
  context.lineTo(x, height - FOOT);
  context.stroke();
  context.setLineDash([]);
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  context.textAlign = "right";
  context.textBaseline = "top";
  context.fillStyle = fills.ground;
  const wide = context.measureText("warm-up").width + 8;
  if (x - GUTTER > wide + 10) {
    context.fillRect(x - wide - 4, 4, wide, 16);
    context.fillStyle = fills.ink;
    context.fillText("warm-up", x - 8, 6);
  }
  context.textAlign = "left";
}

const mixAlpha = (colour, alpha) => colour + Math.round(alpha * 255).toString(16).padStart(2, "0");

function drawHosts() {
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.fillStyle = fills.soft;
  const many = asBars() ? 1 : hostsInABand(), tall = many * (hosts.rows / Math.max(1, hosts.count)) * rowHeight();
  const every = Math.max(1, Math.ceil(14 / tall));
  for (let host = 0; host < hosts.count; host += many * every) {
    const end = Math.min(hosts.count, host + many), y0 = yOf(hosts.first[host]), y1 = yOf(hosts.first[end]);
    if (y1 < 0 || y0 > height - FOOT) continue;
    context.fillStyle = fills.line;
    context.fillRect(asBars() ? 0 : GUTTER - 6, y0 - 0.5, asBars() ? GUTTER : 6, 1);
    const y = Math.min(Math.max((y0 + y1) / 2, Math.min(8, y1 - 6)), Math.max(height - FOOT - 8, y0 + 6));
    if (y > height - FOOT - 2 || y < 4) continue;
    context.fillStyle = fills.soft;
    const name = many === 1 ? hosts.names[host] : `${hosts.names[host]}…${tail(hosts.names[host], hosts.names[end - 1])}`;
    context.fillText(name, GUTTER - 8, y, GUTTER - 12);
  }
  context.textAlign = "left";
}

// What the last name of a band adds to the first: "h000…h007".
function tail(first, last) {
  return first.length === last.length && last.length > 6 ? last.slice(-4) : last;
}

function drawTime() {
  context.fillStyle = fills.ground;
  context.fillRect(0, height - FOOT, width, FOOT);
  context.textBaseline = "middle";
  context.textAlign = "center";
  let until = -Infinity;
  for (const tick of timeTicks(view.t0, view.t1, Math.max(2, Math.floor((width - GUTTER) / 70)))) {
    const x = xOf(tick.at), half = context.measureText(tick.label).width / 2;
    context.fillStyle = mixAlpha(fills.ink, 0.16);
    context.fillRect(x, 0, 1, height - FOOT);
    context.fillStyle = fills.soft;
    context.fillRect(x, height - FOOT, 1, 4);
    if (x - half < until || x + half > width || x - half < 0) continue;
    context.fillText(tick.label, x, height - FOOT / 2 + 2);
    until = x + half + 8;
  }
  context.textAlign = "left";
}
