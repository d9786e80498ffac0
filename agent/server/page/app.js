// The page: what its buttons do, and the views that show what happens in a call.

import { CAN_CHOOSE_SPEAKER } from "./audio.js";
import { Call } from "./call.js";
import { describeProcessing, DeviceList } from "./devices.js";
import { History } from "./history.js";
import { keep, kept } from "./kept.js";
import { keepKey } from "./key.js";
import { showModels } from "./models.js";
import { missingFeature, reloadedProblem } from "./problems.js";
import { Transcript } from "./transcript.js";
import { drawWaterfall } from "./waterfall.js";

const STATES = {
  idle: "Ready",
  connecting: "Connecting",
  reconnecting: "Reconnecting",
  listening: "Listening",
  user: "You are speaking",
  thinking: "Thinking",
  agent: "Agent is speaking",
};

const METER_MS = 100; // between two moves of a meter, as long as its transition: each draws the page again

const byId = (id) => document.getElementById(id);
const talk = byId("talk");
const transcript = new Transcript(byId("transcript"), readOut);
const devices = {
  microphone: new DeviceList(byId("microphone"), "audioinput", () => call?.changeMicrophone()),
  speaker: new DeviceList(byId("speaker"), "audiooutput", (device) => call?.changeSpeaker(device)),
};
const views = {
  transcript,
  showTrace: (trace) => drawWaterfall(byId("waterfall"), trace),
  showState,
  showLevels,
  showProblem,
  showMicrophone,
};

let call = null; // the running call
let broken = null; // the previous call, if it was lost: {voice, text, history}, to continue it
let lost = false; // whether it was lost on this page, not before a reload

// Changes nothing where the text is there already: a screen reader reads every change, and the browser draws it.
function write(element, text = "") {
  if (element.textContent !== text) element.textContent = text;
}

/** Called for each event and each report of the player: 50 times a second while the agent speaks. */
function showState(state) {
  const line = byId("state");
  const before = line.dataset.state;
  const text = state === "listening" && !byId("mute").dataset.on ? "Write to the agent" : STATES[state];
  write(line, lost ? "Not connected" : text);
  line.classList.toggle("lost", lost);
  if (before === state) return;
  line.dataset.state = talk.dataset.state = state;
  talk.querySelector(".label").textContent = state === "idle" ? "Start talking" : "Stop";
  // During a call it is never disabled: it would lose the keyboard's focus between two answers.
  byId("interrupt").ariaDisabled = String(state !== "agent" && state !== "thinking");
  byId("interrupt").disabled = state === "idle";
  if (before === "connecting" && state !== "idle") announce("Connected.");
  if (before === "reconnecting" && state !== "idle") announce("Connected again.");
}

function announce(text) {
  byId("announce").textContent = text;
}

// Off by default: a screen reader that reads the agent's words aloud talks over it, and the microphone picks up both.
function readOut(who, text) {
  if (byId("read-out").checked) byId("said").textContent = `${who}: ${text}`;
}

const drawn = { user: 0, agent: 0 }; // when each meter moved last
function showLevels(levels) {
  const now = performance.now();
  for (const [side, rms] of Object.entries(levels)) {
    if (rms && now - drawn[side] < METER_MS) continue;
    drawn[side] = now;
    const decibels = 20 * Math.log10(rms + 1e-6);
    const level = Math.max(0, Math.min(1, (decibels + 55) / 45)); // -55 dB is a quiet room, -10 dB a loud voice
    byId(`${side}-level`).style.setProperty("--level", level.toFixed(3));
  }
}

/** `opening`: the call begins with a microphone, and the browser has not granted access yet. */
function showMicrophone({ settings, muted, opening = false }) {
  const mute = byId("mute");
  const on = settings && !muted;
  mute.textContent = call && !settings && !opening ? "Use mic" : muted ? "Unmute" : "Mute";
  mute.dataset.on = on ? "yes" : "";
  mute.disabled = !call || opening;
  byId("processing").textContent = settings ? describeProcessing(settings) : "";
  const { state } = byId("state").dataset;
  showState(state);
}

function showProblem(problem) {
  const box = byId("error");
  const mild = Boolean(problem?.mild);
  box.classList.toggle("mild", mild);
  if (mild) box.removeAttribute("role"); // an alert would interrupt the screen reader
  else box.setAttribute("role", "alert");
  if (mild) write(byId("announce"), `${problem.title} ${problem.advice}`);
  box.hidden = !problem;
  write(box.querySelector(".title"), problem?.title);
  write(box.querySelector(".advice"), problem?.advice);
  const again = byId("again");
  const keyForm = byId("key-form");
  const disappearing = (problem?.action ? [] : [again]).concat(problem?.needsKey ? [] : [keyForm]);
  if (disappearing.some((element) => element.contains(document.activeElement))) talk.focus(); // else the focus would be lost
  again.hidden = !problem?.action;
  write(again, problem?.action);
  keyForm.hidden = !problem?.needsKey;
  if (problem?.needsKey) byId("key").focus();
}

/** Begin a call; return whether that was possible. */
function start({ voice, text = "", history = new History() }) {
  const obstacle = missingFeature(voice);
  if (obstacle) {
    showProblem(obstacle);
    return false;
  }
  showProblem(null);
  const newCall = (call = new Call(views, devices, (problem) => newCall === call && stop(problem), history));
  lost = false;
  showMicrophone({ settings: null, muted: false, opening: voice });
  showState("connecting");
  newCall.open({ voice, text });
  return true;
}

function stop(problem = null) {
  if (byId("buttons").contains(document.activeElement)) talk.focus(); // a disabled button would lose the focus
  call?.end();
  broken = problem?.action || problem?.needsKey ? call : null;
  call = null;
  lost = Boolean(broken);
  transcript.end(!broken);
  showMicrophone({ settings: null, muted: false });
  showState("idle");
  showLevels({ user: 0, agent: 0 });
  showProblem(problem);
  keepCall();
  if (!problem) announce("Stopped.");
}

// The page may be reloaded, or discarded by the browser while another tab is open.
function keepCall() {
  const { voice, history } = call ?? broken ?? {};
  keep(history ? { voice, said: history.texts((id) => transcript.words(id)) } : null);
}

function restoreCall() {
  const { voice, said } = kept() ?? { said: [] };
  if (!said.length) return;
  const history = new History();
  for (const [id, { role, text }] of said) {
    history.write(role, id, text);
    transcript.settle(role, id, text);
  }
  transcript.end(false);
  byId("said").textContent = ""; // a screen reader has read it before the reload
  broken = { voice, text: "", history };
  showProblem(reloadedProblem());
}

talk.addEventListener("click", () => (call ? stop() : start({ voice: true, history: broken?.history })));
byId("mute").addEventListener("click", () => call?.toggleMicrophone());
byId("interrupt").addEventListener("click", () => call?.interrupt());
byId("again").addEventListener("click", () => (call ? call.tryNow() : start(broken)));
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value);
  byId("key").value = "";
  showModels(byId("models"), byId("larger"));
  start(broken);
});
byId("typing").addEventListener("submit", (event) => {
  event.preventDefault();
  const box = byId("text");
  const text = box.value.trim();
  if (!text) return;
  if (call) call.type(text);
  else if (!start({ voice: false, text, history: broken?.history })) return; // keeps the typed text
  box.value = "";
});
document.addEventListener("keydown", ({ key }) => key === "Escape" && call?.interrupt());
byId("speaker-choice").hidden = !CAN_CHOOSE_SPEAKER;
window.addEventListener("pagehide", keepCall);
document.addEventListener("visibilitychange", () => document.hidden && keepCall());
restoreCall();
showModels(byId("models"), byId("larger"));
