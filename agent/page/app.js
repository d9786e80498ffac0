// The page: one button that starts and stops a call, and the views that show what happens in it.

import { openMicrophone, openPlayer } from "./audio.js";
import { Conversation } from "./conversation.js";
import { closeProblem, lostMicrophone, missingFeature, slowNetwork, startProblem } from "./problems.js";
import { Session } from "./session.js";
import { Transcript } from "./transcript.js";
import { drawWaterfall } from "./waterfall.js";

const STATES = {
  idle: "Ready",
  connecting: "Connecting",
  listening: "Listening",
  user: "You are speaking",
  thinking: "Thinking",
  agent: "Agent is speaking",
};

const byId = (id) => document.getElementById(id);
const talk = byId("talk");
const transcript = new Transcript(byId("transcript"));

let call = null; // the AbortController of the running call; aborting it releases everything the call opened

function showState(state) {
  const line = byId("state");
  if (line.dataset.state === state) return;
  if (line.dataset.state === "connecting" && state === "listening") announce("Connected. You can speak now.");
  line.textContent = STATES[state];
  line.dataset.state = talk.dataset.state = state;
  talk.querySelector(".label").textContent = state === "idle" ? "Start talking" : "Stop";
}

function announce(text) {
  byId("announce").textContent = text;
}

function showLevel(meter, rms) {
  const decibels = 20 * Math.log10(rms + 1e-6);
  const level = Math.max(0, Math.min(1, (decibels + 55) / 45)); // -55 dB is a quiet room, -10 dB a loud voice
  byId(meter).style.setProperty("--level", level.toFixed(3));
}

function showProblem(problem) {
  const box = byId("error");
  box.hidden = !problem;
  box.querySelector(".title").textContent = problem?.title ?? "";
  box.querySelector(".advice").textContent = problem?.advice ?? "";
  byId("reconnect").hidden = !problem?.reconnect;
}

async function start() {
  const obstacle = missingFeature();
  if (obstacle) return showProblem(obstacle);
  const mine = (call = new AbortController());
  const { signal } = mine;
  showProblem(null);
  showState("connecting");
  try {
    await openCall(signal);
  } catch (error) {
    if (!signal.aborted) stop(startProblem(error));
  }
}

async function openCall(signal) {
  let session = null;
  let conversation = null;
  const onFrame = (pcm, level) => {
    showLevel("user-level", level);
    session?.sendAudio(pcm);
  };
  const [player] = await Promise.all([
    openPlayer({ signal, onReport: (report) => conversation?.played(report) }),
    openMicrophone({ signal, onFrame, onLost: () => stop(lostMicrophone()) }),
  ]);
  // Only now, so that nobody holds a place on the server while deciding about the microphone.
  signal.throwIfAborted();
  transcript.begin();
  conversation = new Conversation({
    send: (event) => session.send(event),
    player,
    transcript,
    showTrace: (trace) => drawWaterfall(byId("waterfall"), trace),
    showState,
    showLevel: (level) => showLevel("agent-level", level),
    showProblem,
  });
  session = new Session({
    signal,
    onEvent: (event) => conversation.receive(event),
    onSlow: () => showProblem(slowNetwork()),
    onClose: (close) => stop(closeProblem(close)),
  });
}

function stop(problem = null) {
  call?.abort();
  call = null;
  transcript.end();
  showState("idle");
  showLevel("user-level", 0);
  showLevel("agent-level", 0);
  showProblem(problem);
  if (!problem) announce("Stopped.");
}

talk.addEventListener("click", () => (call ? stop() : start()));
byId("reconnect").addEventListener("click", () => {
  talk.focus(); // the button that was pressed disappears
  start();
});
