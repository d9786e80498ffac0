// The recordings of one call: a player, and under it both sides as waveforms, the waits, and the tools.

import { milliseconds } from "../../page/steps.js";
import { ask } from "./api.js";
import { clock, duration, element } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const SIDES = [
  ["caller", "Caller"],
  ["agent", "Agent"],
];
const COMPLETED_AFTER_MS = 1500; // the server completes a file a moment after its call
const TRIES = 4;

/** Draw the recordings of a call into `place`. `current`: whether the call is still the one that is shown. */
export async function drawRecordings(place, call, current) {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const { recordings } = await (await ask("recordings", { call: call.call })).json();
    if (!current()) return;
    const drawn = new Map([...place.children].map((item) => [item.dataset.shown, item]));
    place.replaceChildren(...recordings.map((one) => drawn.get(shown(one)) ?? recordingItem(one, call)));
    if (call.seconds === null || recordings.every((one) => one.ended)) return;
    await new Promise((resolve) => setTimeout(resolve, COMPLETED_AFTER_MS));
  }
}

/** What tells a drawing of a recording from a newer one, which a player that runs must not be replaced for. */
function shown({ id, ended }) {
  return `${id} ${ended}`;
}

function recordingItem(recording, call) {
  const name = `Recording of ${clock(recording.began)}`;
  const title = element("h3", "", element("span", "", name));
  const item = element("section", "recording", title);
  item.dataset.shown = shown(recording);
  if (!recording.ended && call.seconds === null) {
    title.append(element("span", "", "is being recorded now"));
    return item;
  }
  const state = recording.ended ? `${duration(recording.seconds)}, ${recording.ended}` : "cut off";
  title.append(element("span", "", state));
  const player = element("audio");
  player.controls = true;
  player.preload = "metadata";
  player.ariaLabel = `${name}: the caller on the left, the agent on the right`;
  player.src = recording.url;
  const problem = element("p", "notes bad");
  problem.hidden = true;
  player.addEventListener("error", async () => {
    problem.textContent = (await reason(recording.url)) ?? "The recording cannot be played.";
    problem.hidden = false;
  });
  item.append(player, problem);
  if (recording.seconds) item.append(timeline(recording, call, player));
  return item;
}

/** Return why the server does not give a file, null where it does. */
async function reason(url) {
  const answer = await fetch(url, { headers: { Range: "bytes=0-0" } }).catch(() => null);
  const body = answer?.ok ? {} : await answer?.json().catch(() => ({}));
  return body?.error?.message ?? null;
}

/** A lane for each side, one for the waits and one for the tools; a click plays from there. */
function timeline(recording, call, player) {
  const { seconds, spans } = recording;
  const share = (time) => `${((100 * Math.min(seconds, Math.max(0, time))) / seconds).toFixed(3)}%`;
  const bar = (begin, end, title) => {
    const made = element("i");
    made.style.setProperty("--left", share(begin));
    made.style.setProperty("--width", share(end - begin));
    made.title = title;
    return made;
  };
  const board = element("div", "lanes");
  const lane = (kind, name, ...bars) => {
    const made = element("div", `lane ${kind}`, element("span", "", name), ...bars);
    board.append(made);
    return made;
  };
  const turns = new Map(call.turns.map((turn) => [turn.turn, turn]));
  const written = ({ turn }) => turns.get(turn)?.models?.join(", then ");
  const drawn = SIDES.map(([side, name]) => {
    const own = spans.filter((span) => span.side === side);
    return [side, lane(side, name, ...own.map((span) => bar(span.begin, span.end, written(span) ?? name)))];
  });
  const waits = firsts(spans).flatMap((span) => {
    let end = span.begin; // the steps end with the first sound of the answer
    return [...(turns.get(span.turn)?.budget ?? [])].reverse().map(({ name, ms }) => {
      const made = bar(end - ms / 1000, end, `${name}: ${milliseconds(ms)}`);
      end -= ms / 1000;
      return made;
    });
  });
  lane("wait", "Wait", ...waits);
  const late = recording.began - call.began;
  const tools = call.turns.flatMap((turn) => turn.tools).map((tool) => {
    const title = tool.ms === null ? tool.name : `${tool.name}: ${milliseconds(tool.ms)}`;
    return bar(tool.at - late, tool.at - late + (tool.ms ?? 0) / 1000, title);
  });
  if (tools.length) lane("tool", "Tools", ...tools);
  drawWaveforms(recording.id, drawn);
  const now = element("b", "now");
  board.append(now);
  player.addEventListener("timeupdate", () => now.style.setProperty("--left", share(player.currentTime)));
  board.addEventListener("click", (event) => {
    const box = board.getBoundingClientRect();
    player.currentTime = (seconds * (event.clientX - box.left)) / box.width;
    player.play().catch(() => {}); // a browser may not play what it cannot decode: the player says so
  });
  return board;
}

/** The first sound of each reply: it may pause and go on. */
function firsts(spans) {
  const seen = new Set();
  return spans.filter(({ side, turn }) => side === "agent" && !seen.has(turn) && seen.add(turn));
}

/** Draw the waveforms into the lanes of both sides, once the server has read the file. */
async function drawWaveforms(id, lanes) {
  const answer = await ask(`recordings/${id}/waveform`).catch(() => null); // the player says what is wrong
  const peaks = await answer?.json();
  for (const [side, lane] of peaks ? lanes : []) lane.append(waveform(peaks[side]));
}

/** Return a waveform from peaks of 0 to 100. */
function waveform(peaks) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", `0 -100 ${peaks.length} 200`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-hidden", "true");
  const shape = document.createElementNS(SVG, "path");
  const upper = peaks.map((peak, place) => `L${place} ${-peak}`);
  const lower = peaks.map((peak, place) => `L${place} ${peak}`).reverse();
  shape.setAttribute("d", `M0 0${upper.join("")}L${peaks.length} 0${lower.join("")}Z`);
  picture.append(shape);
  return picture;
}
