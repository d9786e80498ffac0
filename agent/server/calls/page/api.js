// Requests to the server, with the key for calls, which is kept until the tab is closed.

const STORAGE_KEY = "rejoinder.calls-key";

let key = "";
try {
  key = sessionStorage.getItem(STORAGE_KEY) ?? "";
} catch {
  // A browser may refuse storage. The key then holds until the page is reloaded.
}

/** A request was refused or failed. `status`: of HTTP, 0 where there was no answer. */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function keepKey(entered) {
  key = entered;
  try {
    sessionStorage.setItem(STORAGE_KEY, entered);
  } catch {
    // As above.
  }
}

/** Return the answer to a request below /calls/api/. Throws Refused. */
export async function ask(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== ""));
  let answer;
  try {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    answer = await fetch(`calls/api/${path}?${query}`, { headers, signal, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused("The server does not answer.", 0);
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(body.error?.message ?? `The server answers ${answer.status}.`, answer.status);
}

/** Yield the messages of the stream of running calls, until it ends or `signal` aborts it. Throws Refused. */
export async function* follow(call, signal) {
  const answer = await ask("live", { call }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) if (event.startsWith("data: ")) yield JSON.parse(event.slice(6));
  }
}

/** Let the browser save the calls that fit a filter. `form`: calls or turns. */
export async function save(form, filters) {
  const answer = await ask("export", { ...filters, form, limit: 200 });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = `${form}.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
}
