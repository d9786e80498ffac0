// The history of the conversation, to send to a server that has lost it. Each answer contains only what was heard.

const MAX_ITEMS = 40; // items that are sent again, the newest ones

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

  /** Return [id, {role, text}] of all items. `shown(id)` returns the heard part of an item that is being spoken. */
  texts(shown) {
    const items = [...this.items].map(([id, { role, text }]) => [id, { role, text: text || shown(id) }]);
    return items.filter(([, { text }]) => text);
  }

  /** The id of the last item if it waits for an answer, else null. */
  get unanswered() {
    const [id, last] = this.#withText().at(-1) ?? [];
    return last?.role === "user" ? id : null;
  }

  /** Return the events that create all items. */
  createEvents() {
    return this.#withText().slice(-MAX_ITEMS).map(([id, { role, text }]) => itemCreate(role, id, text));
  }

  #withText() {
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
