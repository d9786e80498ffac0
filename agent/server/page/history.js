// What was said, so that a server that lost the conversation can be told of it again: with what was heard of each
// answer, and no more.

const MOST = 40; // items told again; the agent has no use for older ones

export class History {
  constructor() {
    this.items = new Map(); // item id -> {role, text}, in order
  }

  /** Give the item its place, even while there is no text. */
  place(role, id) {
    if (!this.items.has(id)) this.items.set(id, { role, text: "" });
  }

  write(role, id, text) {
    this.place(role, id);
    this.items.get(id).text = text.trim();
  }

  /** Return [id, {role, text}] of all that was said; `shown(id)` is what is heard so far of what is still being said. */
  told(shown) {
    const items = [...this.items].map(([id, { role, text }]) => [id, { role, text: text || shown(id) }]);
    return items.filter(([, { text }]) => text);
  }

  /** The id of what was said last if that waits for an answer, else null. */
  get unanswered() {
    const [id, last] = this.#said().at(-1) ?? [];
    return last?.role === "user" ? id : null;
  }

  /** Return the events that tell all of it. */
  retell() {
    return this.#said().slice(-MOST).map(([id, { role, text }]) => itemCreate(role, id, text));
  }

  #said() {
    return [...this.items].filter(([, { text }]) => text);
  }
}

/** The event that puts a text into the conversation. */
export function itemCreate(role, id, text) {
  const type = role === "user" ? "input_text" : "output_text";
  return {
    type: "conversation.item.create",
    item: { id, type: "message", role: role === "user" ? "user" : "assistant", content: [{ type, text }] },
  };
}
