// One call: its facts, and its turns with words, waterfall, tools and queue waits.

import { milliseconds, steps } from "../../page/steps.js";
import { clock, count, duration, element } from "./elements.js";

const STATUS = {
  "": "in progress",
  completed: "",
  incomplete: "cut short",
  cancelled: "interrupted",
  failed: "failed",
};

export class CallView {
  /** `parts`: the elements facts, turns and partial. */
  constructor(parts) {
    Object.assign(this, parts);
    this.clear();
  }

  clear() {
    this.items = new Map(); // number of a turn -> its element
    this.facts.replaceChildren();
    this.turns.replaceChildren();
    this.partial.hidden = true;
  }

  /** Draw a call, or what has changed in it: of its turns only those that it holds. */
  draw(call) {
    this.facts.replaceChildren(...facts(call));
    for (const turn of call.turns) {
      const made = turnItem(turn);
      const old = this.items.get(turn.number);
      keepOpen(old, made);
      if (old) old.replaceWith(made);
      else this.turns.append(made);
      this.items.set(turn.number, made);
    }
    this.partial.hidden = !call.partial;
    this.partial.textContent = call.partial ? `Caller: ${call.partial} …` : "";
  }
}

function facts(call) {
  const rows = [
    ["Call", call.call],
    ["Wire", call.wire],
    ["Caller", call.caller],
    ["Called", call.called],
    ["Began", clock(call.began)],
    ["Duration", call.live || call.seconds === null ? "" : duration(call.seconds)],
    ["Answers", call.p50_ms ? `p50 ${milliseconds(call.p50_ms)}, p95 ${milliseconds(call.p95_ms)}` : ""],
    ["Longest silence", call.longest_silence_ms ? milliseconds(call.longest_silence_ms) : ""],
    ["Interruptions", `${call.interruptions} real, ${call.false_interruptions} false`],
    ["Caller speaks", call.caller_share === null ? "" : `${Math.round(100 * call.caller_share)} % of the talk`],
    ["Ended", call.reason],
    ["Error", call.error],
    ["Left out", call.left_out ? count(call.left_out, "earlier turn") : ""],
  ];
  return rows
    .filter(([, value]) => value)
    .flatMap(([name, value]) => [element("dt", "", name), element("dd", name === "Error" ? "bad" : "", value)]);
}

function turnItem(turn) {
  const item = element("li");
  item.id = `turn-${turn.number}`;
  const title = element("h3", "", element("span", "", `Turn ${turn.number}`), element("span", "", `at ${duration(turn.at)}`));
  const state = turn.turn === null ? "no answer" : (STATUS[turn.status] ?? turn.status);
  if (turn.beside) title.append(element("span", "", "out of band"));
  if (turn.latency_ms) title.append(element("span", "", `answered in ${milliseconds(turn.latency_ms)}`));
  if (state) title.append(element("span", turn.status === "failed" ? "bad" : "", state));
  if (turn.models?.length) title.append(element("span", "", turn.models.join(", then ")));
  item.append(title);
  if (turn.said) item.append(words("user", turn.typed ? "Caller, typed" : "Caller", turn.said));
  if (turn.text) item.append(answer(turn));
  const notes = [
    turn.error && `Error: ${turn.error}`,
    turn.refused && `Refused by the guard: ${turn.refused}`,
    (turn.counts.cache_exact || turn.counts.cache_similar) && "From the cache",
    turn.route?.model && `Route: ${turn.route.model} (${turn.route.reason})`,
    turn.tokens && `Tokens: ${turn.tokens.read} read, ${turn.tokens.written} written`,
  ].filter(Boolean);
  for (const note of notes) item.append(element("p", note.startsWith("Error") ? "notes bad" : "notes", note));
  for (const tool of turn.tools) item.append(toolItem(tool));
  if (turn.budget.length) item.append(steps(turn.budget, "Time to the answer"));
  if (turn.waits.length) {
    const waits = turn.waits.map(({ name, ms }) => `${name} ${milliseconds(ms)}`);
    item.append(element("p", "notes", `Waited in queues: ${waits.join(", ")}`));
  }
  return item;
}

function words(role, who, ...text) {
  return element("div", `words ${role}`, element("span", "who", who), element("p", "", ...text));
}

/** The words that were heard, and those that an interruption cut off, in grey. */
function answer({ text, heard }) {
  if (heard === null || heard.trim() === text.trim()) return words("agent", "Agent", text);
  const begin = text.startsWith(heard) ? heard : "";
  const cut = element("s", "unheard", text.slice(begin.length).trimStart());
  const said = element("span", "for-screen-readers", "Not heard: ");
  const before = heard ? [`${heard.trimEnd()} `] : []; // no line through the space
  return words("agent", "Agent, interrupted", ...before, said, cut);
}

function toolItem(tool) {
  const state = tool.ms === null ? "" : `, ${milliseconds(tool.ms)}`;
  const title = element("summary", tool.failed ? "bad" : "", `Tool ${tool.name}${tool.failed ? ", failed" : ""}${state}`);
  const item = element("details", "", title, element("pre", "", tool.arguments || "(no arguments)"));
  item.append(element("pre", "", tool.result || (tool.ms === null ? "(runs)" : "(no result)")));
  for (const block of item.querySelectorAll("pre")) block.tabIndex = 0; // it may scroll
  return item;
}

/** Keep those details open that the reader has opened. */
function keepOpen(old, made) {
  const before = [...(old?.querySelectorAll("details") ?? [])];
  for (const [place, details] of [...made.querySelectorAll("details")].entries()) {
    details.open = before[place]?.open ?? false;
  }
}
