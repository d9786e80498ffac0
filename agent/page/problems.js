// What can go wrong, in words: {title, advice, reconnect}. Every one says what to do next.

const MICROPHONE = {
  NotAllowedError: {
    title: "The microphone was refused.",
    advice: "Allow it for this page (the icon beside the address, or the browser's settings), then start again.",
  },
  NotFoundError: {
    title: "No microphone was found.",
    advice: "Plug one in or switch it on, then start again.",
  },
  NotReadableError: {
    title: "The microphone does not answer.",
    advice: "Another program may be using it. Close that program, then start again.",
  },
};

/** Explain why the call could not start, or null if nothing is in the way so far. */
export function missingFeature() {
  if (!window.isSecureContext) {
    return {
      title: "This address cannot use the microphone.",
      advice: "Browsers hand it only to https:// pages and to localhost. Open the page through one of those.",
    };
  }
  if (!navigator.mediaDevices?.getUserMedia || !window.AudioWorkletNode) {
    return {
      title: "This browser cannot record sound for a page.",
      advice: "Use a current version of Chrome, Edge, Firefox or Safari.",
    };
  }
  return null;
}

export function startProblem(error) {
  const other = { title: "The sound could not be started.", advice: `${error.name}: ${error.message}` };
  return MICROPHONE[error.name] ?? other;
}

export function lostMicrophone() {
  return { title: "The microphone went away.", advice: "Plug it in again or choose another, then start again." };
}

export function closeProblem({ code, reason, greeted }) {
  const [title, advice] = explainClose(code, reason, greeted);
  return { title, advice, reconnect: true };
}

function explainClose(code, reason, greeted) {
  if (!greeted && reason) return ["The server refused the call.", `It says: ${reason}`];
  if (!greeted) return ["The server does not answer.", "Check that it is running, and not full, then reconnect."];
  const next = "Reconnect to start a new conversation.";
  if (code === 1006) return ["The connection to the server broke off (code 1006).", next];
  return [`The server ended the call (code ${code}).`, reason ? `It says: ${reason} ${next}` : next];
}

export function slowNetwork() {
  return {
    title: "The network is too slow.",
    advice: "Some of what you say does not reach the server. Move closer to the access point, or pause other uploads.",
  };
}

export function serverProblem(message) {
  return { title: "The server reports a problem.", advice: `${message} You can go on talking.` };
}

export function responseProblem(details) {
  const why = details?.error?.message ?? details?.reason ?? "no reason was given";
  return { title: "The answer failed.", advice: `${why} You can ask again.` };
}

export function tooLongProblem() {
  return { title: "The answer is too long to hold.", advice: "Its end will not be heard. Interrupt to go on." };
}
