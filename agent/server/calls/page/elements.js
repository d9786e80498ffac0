// Elements of the page. Text from calls is hostile: it becomes text nodes only, never HTML.

/** Return an element. `content`: a text, or nodes and texts. */
export function element(tag, className = "", ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content.filter((one) => one !== null && one !== ""));
  return made;
}

/** Return the words for a number of seconds: "4.2 s", or "3 min 05 s". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${String(Math.floor(seconds % 60)).padStart(2, "0")} s`;
}

/** Return the time of day at seconds since the epoch, with the date unless it is today. */
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString(undefined, { hour12: false });
  return at.toDateString() === new Date().toDateString() ? time : `${at.toLocaleDateString()} ${time}`;
}

/** Return "1 turn" or "2 turns". */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
