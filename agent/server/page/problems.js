// Error messages for the user: {title, advice, action (the button's label, if there is one), mild, needsKey}. The
// advice says what to do next. A mild problem disappears by itself. `needsKey`: the user must enter a key.

import { headers } from "./key.js";

const TYPE_MEANWHILE = "You can type instead.";
const MICROPHONE = {
  NotAllowedError: {
    title: "The microphone was refused.",
    advice: `Allow it for this page (the icon beside the address, or the browser's settings), then start again. ${TYPE_MEANWHILE}`,
  },
  NotFoundError: {
    title: "No microphone was found.",
    advice: `Connect one or switch it on, then start again. ${TYPE_MEANWHILE}`,
  },
  NotReadableError: {
    title: "The microphone does not answer.",
    advice: `Another program may be using it. Close that program, then start again. ${TYPE_MEANWHILE}`,
  },
};

/** Return the problem that keeps a call from starting, null if there is none so far. */
export function missingFeature(microphone) {
  if (!window.isSecureContext) {
    return {
      title: "This address cannot be used for calls.",
      advice:
        "Browsers let only https:// pages and localhost use the microphone and play a call. Open the page at such an address.",
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
  return { title: "The page was reloaded.", advice: "The conversation is kept.", action: "Go on", mild: true };
}

const UPGRADE_REQUIRED = 426;
const TOO_LARGE = 431;
const UNAVAILABLE = 503;
const UNREACHABLE = ["The server does not answer.", "Check that it is running and that you are online."];

/** Return the problem that kept the call from starting. Asks the server if a file of the page is missing. */
export async function startProblem(error) {
  if (error.fetching) {
    const [title, advice] = (await socketStatus()) === TOO_LARGE ? cookiesTooLarge() : UNREACHABLE;
    return { title, advice, action: "Try again" };
  }
  const other = { title: "The sound could not be started.", advice: `${error.name}: ${error.message}` };
  return MICROPHONE[error.name] ?? other;
}

export function lostMicrophone() {
  return {
    title: "The microphone was disconnected.",
    advice: `The call goes on. Connect it again or choose another one, then switch it on. ${TYPE_MEANWHILE}`,
  };
}

/** Return the problem to show while the page reconnects. `close` as in session.js. */
export function waitingProblem({ code, reason }) {
  if (code === 1013) {
    const loading = reason.includes("loading");
    return {
      title: loading ? "The models are still loading." : "All lines of the server are busy.",
      advice: "The call continues as soon as the server is ready.",
      action: "Try now",
      mild: true,
    };
  }
  return {
    title: "The connection was lost.",
    advice: "Reconnecting. The conversation is kept.",
    action: "Try now",
    mild: true,
  };
}

/** Return why the call is over. Asks the server for its status. */
export async function closeProblem(close) {
  if (!close.greeted && !close.reason && (await needsKey())) {
    return { title: "This server needs a key.", advice: "If you entered one, it is not valid.", needsKey: true };
  }
  const [title, advice] = await explainClose(close);
  return { title, advice, action: close.code === 1000 || close.expired ? undefined : "Try again" };
}

async function explainClose({ code, reason, greeted, expired }) {
  if (code === 1000 || expired) return ["The call is over.", reasonGiven(reason)];
  if (code === 1013 && reason.includes("busy")) return noLine(reason);
  if (greeted || reason) return [`The server ended the call (code ${code}).`, reasonGiven(reason)];
  // The browser does not tell a page why a socket could not be opened. A plain request carries the same cookies.
  const answer = await ask("v1/realtime");
  const status = answer?.status;
  if (status === TOO_LARGE) return cookiesTooLarge();
  // With the setting behind_balancer. A balancer that reaches no server answers 503 with a page of its own.
  if (status === UNAVAILABLE && answer.headers.get("Content-Type")?.startsWith("text/plain")) {
    return noLine((await answer.text()).trim());
  }
  if (status === UPGRADE_REQUIRED) {
    return [
      "The server does not take calls from this address.",
      `It is running, but refuses pages from ${location.origin}. Open the page at the address that the server printed, or add this one to its setting allowed_origins.`,
    ];
  }
  return UNREACHABLE;
}

function noLine(reason) {
  const title = reason.includes("busy") ? "All lines are busy." : "The server takes no calls now.";
  return [title, reasonGiven(reason)];
}

function cookiesTooLarge() {
  return [
    "The cookies of this address are too large.",
    `The server refuses them. Clear the cookies of ${location.hostname} in the browser's settings. Programs on its other ports set cookies too.`,
  ];
}

/** Return the HTTP status of a plain request to the WebSocket's URL: 426 if a call is possible. */
async function socketStatus() {
  return (await ask("v1/realtime"))?.status;
}

async function needsKey() {
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
  return { title: "The server reports a problem.", advice: `${sentence(message)} You can continue talking.` };
}

export function responseProblem(details) {
  const reason = details?.error?.message || details?.error?.code || details?.reason;
  return { title: "The answer failed.", advice: `${reasonGiven(reason)} You can ask again.` };
}

function reasonGiven(reason) {
  return reason ? `The server says: ${sentence(reason)}` : "The server gave no reason.";
}

function sentence(words) {
  return /[.!?]$/.test(words) ? words : `${words}.`;
}

export function tooLongProblem() {
  return { title: "The answer is too long.", advice: "You will not hear its end. Interrupt it to continue." };
}
