// Connects the page: the running calls live, the earlier ones by filter, and the call that the address names.

import { ask, follow, keepKey, save } from "./api.js";
import { CallView } from "./call.js";
import { drawEnded, drawLive } from "./lists.js";
import { drawRecordings } from "./recordings.js";

const RETRY_MS = 2000; // wait before a lost stream is opened again
const NEEDS_KEY = 401;

const at = (id) => document.getElementById(id);
const view = new CallView({ facts: at("facts"), turns: at("turns"), partial: at("partial") });

let ended = []; // the earlier calls that are listed
let filters = {};
let endedCount = null; // as the stream last told
let stream = new AbortController();

function chosen() {
  return decodeURIComponent(location.hash.slice(1));
}

// --- problems ---------------------------------------------------------------------------------------------------

function complain(error) {
  at("problem").hidden = false;
  at("reason").textContent = error.message;
  const wasHidden = at("key-form").hidden;
  at("key-form").hidden = error.status !== NEEDS_KEY;
  if (wasHidden && error.status === NEEDS_KEY) at("key").focus();
}

function calm() {
  at("problem").hidden = true;
}

/** Do something that asks the server, and show why it failed. */
async function attempt(work) {
  try {
    await work();
    calm();
  } catch (error) {
    if (error.name !== "AbortError") complain(error);
  }
}

// --- lists ------------------------------------------------------------------------------------------------------

function drawLists(live) {
  if (live) {
    at("no-live").hidden = live.length > 0;
    drawLive(at("live"), live, chosen());
  }
  at("no-ended").hidden = ended.length > 0;
  at("no-ended").textContent = Object.keys(filters).length ? "No call fits." : "No call is kept.";
  drawEnded(at("ended"), ended, chosen());
  const wires = new Set(ended.map((call) => call.wire));
  at("wires").replaceChildren(...[...wires].map((wire) => new Option(wire)));
}

/** List the earlier calls anew; `before`: add those that began before this time. */
function list(before = "") {
  return attempt(async () => {
    const found = await (await ask("calls", { ...filters, before })).json();
    const known = new Set(ended.map((call) => call.id));
    ended = before ? [...ended, ...found.calls.filter((call) => !known.has(call.id))] : found.calls;
    at("more").hidden = !found.more;
    drawLists();
  });
}

at("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(event.target));
  const since = given.since ? new Date(given.since).getTime() / 1000 : "";
  filters = Object.fromEntries(Object.entries({ ...given, since }).filter(([, value]) => value !== ""));
  list();
});
at("filters").addEventListener("reset", () => {
  filters = {};
  list();
});
at("more").addEventListener("click", () => list(ended.at(-1).began));
at("export-calls").addEventListener("click", () => attempt(() => save("calls", filters)));
at("export-turns").addEventListener("click", () => attempt(() => save("turns", filters)));
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(at("key").value);
  start();
});

// --- one call ---------------------------------------------------------------------------------------------------

/** Show the call that the address names, or none. */
function show() {
  const id = chosen();
  at("main").classList.toggle("reading", Boolean(id));
  at("no-call").hidden = Boolean(id);
  at("call-body").hidden = !id;
  view.clear();
  at("recordings").replaceChildren();
  drawLists();
  start();
  if (id) at("call").focus();
}

async function load(id) {
  const call = await (await ask(`calls/${encodeURIComponent(id)}`)).json();
  if (id !== chosen()) return;
  view.draw(call);
  attempt(() => drawRecordings(at("recordings"), call, () => [call.id, id].includes(chosen())));
  if (call.id === id) return;
  history.replaceState(null, "", `#${encodeURIComponent(call.id)}`); // it was the call's own id, as in the log
  show();
}

// --- the stream -------------------------------------------------------------------------------------------------

function start() {
  stream.abort();
  stream = new AbortController();
  const id = chosen();
  list();
  if (id) attempt(() => load(id));
  watch(id, stream.signal);
}

/** Follow the running calls until another call is chosen. */
async function watch(id, signal) {
  let wasLive = false;
  while (!signal.aborted) {
    try {
      for await (const message of follow(id, signal)) {
        at("state").textContent = "Live";
        drawLists(message.live);
        at("load").hidden = !message.load_level;
        at("load").textContent = `Load level ${message.load_level}`;
        if (message.call) view.draw({ ...message.call, live: true });
        const isLive = message.live.some((call) => call.id === id);
        if (wasLive && !isLive) attempt(() => load(id));
        wasLive = isLive;
        if (endedCount !== null && message.ended !== endedCount) list();
        endedCount = message.ended;
      }
    } catch (error) {
      if (signal.aborted) return;
      complain(error);
      if (error.status === NEEDS_KEY) return;
    }
    if (signal.aborted) return;
    at("state").textContent = "Reconnecting";
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

addEventListener("hashchange", show);
show();
