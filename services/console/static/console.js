// What a page does by itself: local times that count, parts that follow the facts, output as it is written.
// Every half second the page asks for itself; while nothing has changed the answer is "304", else changed parts are swapped.
"use strict";

const EVERY_MS = 500, AWAY_MS = 2000, OUTPUT_MS = 1000, KEPT = 262144;
const root = document.documentElement;
let ahead = Date.now() - Number(root.dataset.now || Date.now());

const two = (n) => String(n).padStart(2, "0");
const length = (ms) => {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86400)}d${two(Math.floor(s / 3600) % 24)}h`;
};
const local = (when, now) => {
  const at = new Date(when), clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (Math.abs(when - now) < 43200000) return clock;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
};
const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };

function tick() {
  const now = Date.now() - ahead;
  for (const time of document.querySelectorAll("time[datetime]")) {
    const when = Date.parse(time.dateTime);
    if (time.hasAttribute("data-since")) say(time, length(now - when));
    else if (time.hasAttribute("data-until")) say(time, when > now ? length(when - now) : "over");
    else say(time, local(when, now));
    if (!time.title) time.title = new Date(when).toISOString().replace("T", " ").slice(0, 19) + " UTC";
  }
  for (const bar of document.querySelectorAll("progress[data-from]")) {
    const from = Number(bar.dataset.from), until = Number(bar.dataset.until);
    bar.value = Math.min(1, Math.max(0, (now - from) / (until - from)));
  }
}

// Make `old` the same as `fresh`, changing as little as possible: what has the focus keeps it.
function become(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const keyed = new Map(), kept = new Set([...fresh.children].map((child) => child.dataset && child.dataset.key));
  for (const child of [...old.children]) {
    if (!child.dataset || !child.dataset.key) continue;
    if (kept.has(child.dataset.key)) keyed.set(child.dataset.key, child); else child.remove();
  }
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = child.dataset && child.dataset.key;
    const same = key ? keyed.get(key) : at;
    const fits = same && same.nodeType === child.nodeType && same.nodeName === child.nodeName;
    if (fits && (key || !(same.dataset && same.dataset.key))) {
      if (same !== at) old.insertBefore(same, at); else at = at.nextSibling;
      if (child.nodeType === Node.ELEMENT_NODE) become(same, child);
      else if (same.nodeValue !== child.nodeValue) same.nodeValue = child.nodeValue;
    } else {
      const made = document.importNode(child, true);
      if (key) made.classList.add("fresh");
      old.insertBefore(made, at);
    }
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

let tag = null, spoken = "", spokenAt = 0;
function swap(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html"), focused = document.activeElement;
  for (const part of document.querySelectorAll("[data-part]")) {
    const same = fresh.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
    if (same) become(part, same);
  }
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  tick();
  const said = document.querySelector("[data-said]");
  if (said && said.dataset.said !== spoken && Date.now() - spokenAt > 10000) {
    if (spoken) document.getElementById("said").textContent = said.dataset.said;
    spoken = said.dataset.said;
    spokenAt = Date.now();
  }
}

function pulse(good) {
  document.getElementById("pulse").className = `pulse ${good ? "on" : "off"}`;
  if (!good) { document.getElementById("fresh").textContent = "Not current: the console does not answer. It is asked again."; return; }
  const time = document.querySelector("[data-clock]"), now = new Date(Date.now() - ahead).toISOString();
  if (time) { time.dateTime = now; time.removeAttribute("title"); return; }
  const made = document.createElement("time");
  made.setAttribute("data-clock", "");
  made.dateTime = now;
  document.getElementById("fresh").replaceChildren("As of ", made);
}

async function look() {
  try {
    const answer = await fetch(location.href, { headers: tag ? { "if-none-match": tag } : {}, cache: "no-store", redirect: "manual" });
    if (answer.type === "opaqueredirect" || (answer.status === 200 && document.querySelector("[data-passes]"))) { location.reload(); return 0; }
    if (answer.headers.has("x-tenure-now")) ahead = Date.now() - Number(answer.headers.get("x-tenure-now"));
    if (answer.status === 200) { swap(await answer.text()); tag = answer.headers.get("etag"); }
    pulse(answer.status === 200 || answer.status === 304);
    return answer.status < 400 ? EVERY_MS : AWAY_MS;
  } catch { pulse(false); return AWAY_MS; }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function visible() {
  while (document.visibilityState === "hidden") {
    await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  }
}

async function follow() {
  for (;;) {
    await visible();
    await pause((await look()) || 60000);
  }
}

// Output: asked for every second while the page is looked at, from where it broke off, until the run is over.
function append(box, text) {
  const below = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
  box.append(text);
  if (box.textContent.length > 2 * KEPT) box.textContent = box.textContent.slice(-KEPT);
  if (below) box.scrollTop = box.scrollHeight;
}

async function output(box) {
  let offset = 0, decoder = new TextDecoder();
  for (;;) {
    await visible();
    let more = false;
    try {
      const answer = await fetch(`${box.dataset.output}&offset=${offset}`, { cache: "no-store", redirect: "manual" });
      if (answer.status === 200) {
        const written = await answer.arrayBuffer(), begin = Number(answer.headers.get("x-tenure-offset"));
        if (!offset) box.textContent = "";
        if (begin !== offset) decoder = new TextDecoder();
        offset = begin + written.byteLength;
        if (written.byteLength) append(box, decoder.decode(written, { stream: true }));
        if (answer.headers.get("x-tenure-over") === "yes") return;
        more = answer.headers.get("x-tenure-more") === "yes";
      } else if (answer.status === 403 || answer.status === 404 || answer.status === 401) {
        box.textContent = (await answer.json()).error;
        return;
      }
    } catch { /* it is asked again */ }
    if (!more) await pause(OUTPUT_MS);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  tick();
  setInterval(tick, 1000);
  if (document.body.hasAttribute("data-live")) follow();
  for (const box of document.querySelectorAll("[data-output]")) output(box);
  for (const select of document.querySelectorAll("form.filters select")) select.addEventListener("change", () => select.form.requestSubmit());
});
