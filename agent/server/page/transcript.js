// The conversation as text. Entries grow during speech; the agent's follow playback. Text that an interruption cut off
// is greyed out, because it is not in the agent's history.

const MAX_ENTRIES = 100; // most entries; the oldest are removed
const NAMES = { user: "You", agent: "Agent" };

export class Transcript {
  /** `onSaid(who, text)` gets each entry when it is complete. */
  constructor(element, onSaid) {
    this.element = element;
    this.onSaid = onSaid;
    this.entries = new Map(); // item id -> {node, text (the DOM's text node), whole (if it was cut)}
    this.following = true; // until the reader scrolls up
    this.newConversation = false; // whether the next entry begins another conversation
    element.addEventListener("scroll", () => (this.following = this.#atEnd()));
    new ResizeObserver(() => this.#follow()).observe(element); // an error message above makes it smaller
  }

  /** End a call: no entry grows any more. `cleared`: whether the next call begins another conversation. */
  end(cleared) {
    this.settleAll();
    this.entries.clear();
    this.newConversation = cleared && this.element.childElementCount > 0;
  }

  /** Mark incomplete entries as final, so that a screen reader reads them. */
  settleAll(role = "entry") {
    for (const [id, { node }] of this.entries) {
      if (node.ariaBusy === "true" && node.matches(`.${role}`)) this.settle(role, id);
    }
  }

  /** Create the item's entry if there is none, even without text. */
  place(role, id) {
    if (this.entries.has(id)) return this.entries.get(id);
    const node = create("div", `entry ${role}`);
    node.dataset.item = id;
    node.ariaBusy = "true"; // a screen reader waits until the sentence is complete
    const body = create("p", "text");
    const text = document.createTextNode("");
    body.append(text);
    node.append(create("span", "who", NAMES[role]), body);
    this.entries.set(id, { node, text });
    this.#add(node);
    return this.entries.get(id);
  }

  append(role, id, delta) {
    this.place(role, id).text.appendData(delta);
    this.#follow();
  }

  /** Return the words of an entry, "" where there is none. */
  words(id) {
    return this.entries.get(id)?.text.data ?? "";
  }

  /** Show the given part of the agent's words. */
  reveal(id, text) {
    const entry = this.entries.get(id);
    if (!entry || entry.text.data === text) return;
    entry.text.data = text;
    this.#follow();
  }

  /** The entry is complete; `text`, if given, replaces what was there, and an empty entry disappears. */
  settle(role, id, text) {
    if (text === undefined && !this.entries.has(id)) return;
    const entry = this.place(role, id);
    if (text !== undefined) entry.text.data = text;
    if (!entry.text.data.trim()) return this.#remove(id);
    this.#complete(entry);
    this.#follow();
  }

  #complete({ node, text }) {
    node.ariaBusy = "false";
    this.onSaid(node.querySelector(".who").textContent, text.data);
  }

  /** Put facts into the entry's data-attributes. */
  mark(id, facts) {
    Object.assign(this.entries.get(id)?.node.dataset ?? {}, facts);
  }

  /** The agent was interrupted; of `whole` only the first `heard` letters were spoken. */
  cut(id, whole, heard) {
    const entry = this.entries.get(id);
    if (!entry) return;
    entry.whole = whole;
    entry.text.data = whole.slice(0, heard);
    const rest = whole.slice(heard);
    const unheard = create("s", "unheard", rest.trimStart());
    entry.text.appendData(rest.slice(0, rest.length - unheard.textContent.length)); // no line through a space
    const said = create("span", "for-screen-readers", " Not heard: "); // most of them ignore the text's style
    const cut = unheard.textContent ? [said, unheard] : []; // empty if the cut was between two sentences
    entry.text.parentNode.replaceChildren(entry.text, ...cut);
    entry.node.classList.add("cut");
    entry.node.querySelector(".who").textContent = `${NAMES.agent}, interrupted`;
    if (entry.node.ariaBusy === "true") this.#complete(entry);
    this.#follow();
  }

  /** Correct the heard text from the server; return whether it is the beginning of the entry. */
  recut(id, heard) {
    const entry = this.entries.get(id);
    if (!entry?.whole?.startsWith(heard)) return false;
    this.cut(id, entry.whole, heard.length);
    return true;
  }

  #add(node) {
    if (this.newConversation) this.element.append(create("p", "divider", "New conversation"));
    this.newConversation = false;
    this.element.append(node);
    while (this.element.childElementCount > MAX_ENTRIES) {
      const oldest = this.element.firstElementChild;
      this.entries.delete(oldest.dataset.item);
      oldest.remove();
    }
    this.#follow();
  }

  #remove(id) {
    this.entries.get(id).node.remove();
    this.entries.delete(id);
  }

  #atEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.element;
    return scrollHeight - scrollTop - clientHeight < 40;
  }

  #follow() {
    if (this.following) this.element.scrollTop = this.element.scrollHeight;
  }
}

function create(tag, className, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}
