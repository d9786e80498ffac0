// The lists of running and earlier calls.

import { milliseconds } from "../../page/steps.js";
import { clock, count, duration, element } from "./elements.js";

const FLOORS = {
  nobody: "quiet",
  user: "caller speaks",
  pause: "caller pauses",
  agent: "agent speaks",
  overlap: "both speak",
};

/** Draw the running calls. `current`: the id of the call that is shown. */
export function drawLive(list, calls, current) {
  const known = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const items = calls.map((call) => {
    const item = known.get(call.id) ?? entry(call);
    const floor = call.live ? (FLOORS[call.floor] ?? call.floor) : "ends";
    fill(item, current, call, [floor], [lastTurn(call), call.partial]);
    item.querySelector(".floor").dataset.floor = call.floor;
    drawParts(item, call.budget);
    return item;
  });
  reorder(list, items);
}

/** Draw the earlier calls. */
export function drawEnded(list, calls, current) {
  const known = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const items = calls.map((call) => {
    const item = known.get(call.id) ?? entry(call);
    const slow = call.slowest_ms ? `slowest ${milliseconds(call.slowest_ms)}` : "";
    const failed = call.errors ? element("span", "bad", count(call.errors, "error")) : "";
    fill(item, current, call, [clock(call.began)], [count(call.turn_count, "turn"), slow, failed]);
    item.querySelector(".parts")?.remove();
    return item;
  });
  reorder(list, items);
}

/** Put the items into the list, and touch nothing that is in its place: a focus would be lost. */
function reorder(list, items) {
  for (const [place, item] of items.entries()) {
    if (list.children[place] !== item) list.insertBefore(item, list.children[place] ?? null);
  }
  while (list.children.length > items.length) list.lastElementChild.remove();
}

function entry(call) {
  const item = element("li");
  item.dataset.id = call.id;
  const link = element("a", "", element("span", "first"), element("span", "second"));
  link.href = `#${encodeURIComponent(call.id)}`;
  const parts = element("span", "parts");
  parts.ariaHidden = "true"; // the call itself has the numbers
  link.append(parts);
  item.append(link);
  return item;
}

function fill(item, current, call, state, facts) {
  const link = item.querySelector("a");
  if (call.id === current) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
  const who = [call.wire, call.caller].filter(Boolean).join(", ") || "call";
  item.querySelector(".first").replaceChildren(who, element("span", "floor", ...state));
  const all = [duration(call.seconds), ...facts].filter(Boolean);
  item.querySelector(".second").replaceChildren(
    ...all.map((fact) => (fact instanceof Node ? fact : element("span", "", fact))),
  );
}

/** Draw the waterfall of the last answer as one bar, a piece for each part. */
function drawParts(item, budget) {
  const bar = item.querySelector(".parts");
  const shown = budget.map(({ ms }) => ms.toFixed(1)).join();
  if (bar.dataset.shown === shown) return;
  bar.dataset.shown = shown;
  bar.replaceChildren(
    ...budget.map(({ name, ms }) => {
      const piece = element("i");
      piece.title = `${name}: ${milliseconds(ms)}`;
      piece.style.setProperty("--share", ms.toFixed(1));
      return piece;
    }),
  );
}

function lastTurn(call) {
  const ms = call.budget.reduce((sum, part) => sum + part.ms, 0);
  return ms ? `last answer ${milliseconds(ms)}` : count(call.turn_count, "turn");
}
