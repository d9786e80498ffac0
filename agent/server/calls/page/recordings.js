// The recordings of one call: a player, and under it who speaks when, and what the caller waits for.

import { ask } from "./api.js";
import { clock, duration, element, milliseconds } from "./elements.js";

const SIDES = [
  ["caller", "Caller"],
  ["agent", "Agent"],
];

/** Draw the recordings of a call into `place`. `current`: whether the call is still the one that is shown. */
export async function drawRecordings(place, call, current) {
  const { recordings } = await (await ask("recordings", { call: call.call })).json();
  if (current()) place.replaceChildren(...recordings.map((one) => recordingItem(one, call)));
}

function recordingItem(recording, call) {
  const item = element("section", "recording");
  const state = recording.ended ? `${duration(recording.seconds)}, ${recording.ended}` : "still recorded, or cut off";
  item.append(element("h3", "", element("span", "", `Recording of ${clock(recording.began)}`), element("span", "", state)));
  const player = element("audio");
  player.controls = true;
  player.preload = "metadata";
  player.ariaLabel = `Recording of ${clock(recording.began)}: the caller on the left, the agent on the right`;
  player.src = recording.url;
  const problem = element("p", "notes bad");
  problem.hidden = true;
  player.addEventListener("error", async () => {
    const answer = await fetch(recording.url, { headers: { Range: "bytes=0-0" } }).catch(() => null);
    const body = answer?.ok ? {} : ((await answer?.json().catch(() => ({}))) ?? {});
    problem.textContent = body.error?.message ?? "The recording cannot be played.";
    problem.hidden = false;
  });
  item.append(player, problem);
  if (recording.seconds) item.append(lanes(recording, call, player));
  return item;
}

/** A lane for each side and one for the waits; a click plays from there. */
function lanes(recording, call, player) {
  const place = (bar, begin, end) => {
    bar.style.setProperty("--left", `${((100 * begin) / recording.seconds).toFixed(3)}%`);
    bar.style.setProperty("--width", `${((100 * (end - begin)) / recording.seconds).toFixed(3)}%`);
    return bar;
  };
  const board = element("div", "lanes");
  for (const [side, name] of SIDES) {
    const lane = element("div", `lane ${side}`, element("span", "", name));
    for (const span of recording.spans) {
      if (span.side === side) lane.append(place(element("i"), span.begin, span.end));
    }
    board.append(lane);
  }
  const waits = element("div", "lane wait", element("span", "", "Wait"));
  for (const span of firsts(recording.spans)) {
    let end = span.begin; // the steps end with the first sound of the answer
    const { budget } = call.turns.find((turn) => turn.turn === span.turn) ?? { budget: [] };
    for (const { name, ms } of [...budget].reverse()) {
      const bar = place(element("i"), Math.max(0, end - ms / 1000), end);
      bar.title = `${name}: ${milliseconds(ms)}`;
      waits.append(bar);
      end -= ms / 1000;
    }
  }
  const now = element("b", "now");
  board.append(waits, now);
  player.addEventListener("timeupdate", () => {
    now.style.setProperty("--left", `${((100 * player.currentTime) / recording.seconds).toFixed(3)}%`);
  });
  board.addEventListener("click", (event) => {
    const box = board.getBoundingClientRect();
    player.currentTime = (recording.seconds * (event.clientX - box.left)) / box.width;
    player.play().catch(() => {}); // a browser may not play what it cannot decode: the player says so
  });
  return board;
}

/** The first sound of each reply: it may pause and go on. */
function firsts(spans) {
  const seen = new Set();
  return spans.filter(({ side, turn }) => side === "agent" && !seen.has(turn) && seen.add(turn));
}
