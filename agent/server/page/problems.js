// Error messages for the user: {title, advice, action (the button's label, if there is one), mild, wantsKey}. The
// advice says what to do next. A mild problem disappears by itself. `wantsKey`: the user must enter a key.

import { headers } from "./key.js";

const MEANWHILE = "You can type meanwhile.";
const MICROPHONE = {
  NotAllowedError: {
    title: "The microphone was refused.",
    advice: `Allow it for this page (the icon beside the address, or the browser's settings), then start again. ${MEANWHILE}`,
  },
  NotFoundError: {
    title: "No microphone was found.",
    advice: `Plug one in or switch it on, then start again. ${MEANWHILE}`,
  },
  NotReadableError: {
    title: "The microphone does not answer.",
    advice: `Another program may be using it. Close that program, then start again. ${MEANWHILE}`,
  },
};

/** Return the problem that keeps a call from starting, null if there is none so far. */
export function missingFeature(microphone) {
  if (!window.isSecureContext) {
    return {
      title: "This address cannot be used for calls.",
      advice:
        "Browsers let only https:// pages and localhost use the microphone and play a call. Open the page through one of those.",
    };
  }
  if (!window.AudioWorkletNode || (microphone && !navigator.mediaDevices?.getUserMedia)) {
    return {
      title: "This browser cannot record sound for a page.",
      advice: "Use a current version of Chrome, Edge, Firefox or Safari.",
    };
  }
  return null;
}

export function reloadedProblem() {
  return { title: "The page was loaded again.", advice: "What was said is kept.", action: "Go on", mild: true };
}

const WANTS_SOCKET = 426;
const TOO_LARGE = 431;
const NO_ANSWER = ["The server does not answer.", "Check that it is running and that you are online."];

/** Return the problem that kept the call from starting. Asks the server if a file of the page is missing. */
export async function startProblem(error) {
  if (error.fetching) {
    const [title, advice] = (await socketAddress()) === TOO_LARGE ? cookiesTooLarge() : NO_ANSWER;
    return { title, advice, action: "Try again" };
  }
  const other = { title: "The sound could not be started.", advice: `${error.name}: ${error.message}` };
  return MICROPHONE[error.name] ?? other;
}

export function lostMicrophone() {
  return {
    title: "The microphone went away.",
    advice: `The call goes on. Plug it in again or choose another, then switch it on. ${MEANWHILE}`,
  };
}

/** Return the problem to show while the page reconnects. `close` as in session.js. */
export function waitingProblem({ code, reason }) {
  if (code === 1013) {
    const loading = reason.includes("loading");
    return {
      title: loading ? "The models are still loading." : "All lines of the server are busy.",
      advice: "The call goes on as soon as there is an answer.",
      action: "Try now",
      mild: true,
    };
  }
  return {
    title: "The connection broke off.",
    advice: "Connecting again. What was said is kept.",
    action: "Try now",
    mild: true,
  };
}

/** Return why the call is over. Asks the server for its status. */
export async function closeProblem(close) {
  if (!close.greeted && !close.reason && (await wantsKey())) {
    return { title: "This server wants a key.", advice: "It does not know the one that was shown, if any.", wantsKey: true };
  }
  const [title, advice] = await explainClose(close);
  return { title, advice, action: close.code === 1000 || close.expired ? undefined : "Try again" };
}

async function explainClose({ code, reason, greeted, expired }) {
  if (code === 1000 || expired) return ["The call is over.", `The server says: ${reason || "goodbye"}.`];
  if (code === 1013 && reason.includes("busy")) return ["All lines are busy.", `The server says: ${reason}.`];
  if (greeted || reason) return [`The server ended the call (code ${code}).`, `It says: ${reason || "nothing"}.`];
  // The browser does not tell a page why a socket could not be opened. A plain request carries the same cookies.
  const status = await socketAddress();
  if (status === TOO_LARGE) return cookiesTooLarge();
  if (status === WANTS_SOCKET) {
    return [
      "The server does not take calls from this address.",
      `It runs, and refuses pages of ${location.origin}. Open the page at the address that the server printed, or name this one in its setting allowed_origins.`,
    ];
  }
  return NO_ANSWER;
}

function cookiesTooLarge() {
  return [
    "The cookies of this address are too large.",
    `The server refuses them. Clear the cookies of ${location.hostname} in the browser's settings: programs on other ports of it set them, too.`,
  ];
}

/** Return the HTTP status of a plain request to the socket's URL: 426 if a call is possible. */
async function socketAddress() {
  return (await ask("v1/realtime"))?.status;
}

async function wantsKey() {
  return (await ask("v1/models"))?.status === 401;
}

async function ask(path) {
  try {
    const signal = AbortSignal.timeout(3000);
    return await fetch(new URL(path, document.baseURI), { headers: headers(), signal });
  } catch {
    return null;
  }
}

export function slowNetwork() {
  return {
    title: "The network is too slow.",
    advice: "Some of what you say does not reach the server. Move closer to the access point, or pause other uploads.",
  };
}

export function serverProblem(message) {
  return { title: "The server reports a problem.", advice: `${sentence(message)} You can go on talking.` };
}

export function responseProblem(details) {
  const why = details?.error?.message || details?.error?.code || details?.reason || "nothing about why";
  return { title: "The answer failed.", advice: `The server says: ${sentence(why)} You can ask again.` };
}

function sentence(words) {
  return /[.!?]$/.test(words) ? words : `${words}.`;
}

export function tooLongProblem() {
  return { title: "The answer is too long to hold.", advice: "Its end will not be heard. Interrupt to go on." };
}
