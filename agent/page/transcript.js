// The conversation as text. Entries grow while somebody speaks; what was cut off by an interruption stays visible, but
// greyed, because the agent does not remember having said it.

const KEEP = 100; // entries; the oldest go first
const NAMES = { user: "You", agent: "Agent" };

export class Transcript {
  constructor(element) {
    this.element = element;
    this.entries = new Map(); // item id -> {node, text}, where text is the DOM's text node
    this.following = true; // until the reader scrolls up to read something
    element.addEventListener("scroll", () => (this.following = this.#atEnd()));
    new ResizeObserver(() => this.#follow()).observe(element); // an error that appears takes room from it
  }

  /** End a session: no entry will grow any more, and the next session may use the same ids again. */
  end() {
    for (const { node } of this.entries.values()) node.ariaBusy = "false";
    this.entries.clear();
  }

  /** Begin a session: the old entries stay to be read, but the server knows nothing of them. */
  begin() {
    const last = this.element.lastElementChild;
    if (last && !last.matches(".divider")) this.#add(create("p", "divider", "New conversation"));
  }

  /** Make sure that the item has its place, even while there is no text. */
  place(role, id) {
    if (this.entries.has(id)) return this.entries.get(id);
    const node = create("div", `entry ${role}`);
    node.dataset.item = id;
    node.ariaBusy = "true"; // a screen reader waits until the sentence is whole
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

  /** The entry is complete; `text`, if given, replaces what was there, and an empty entry disappears. */
  settle(role, id, text) {
    if (text === undefined && !this.entries.has(id)) return;
    const entry = this.place(role, id);
    if (text !== undefined) entry.text.data = text;
    entry.node.ariaBusy = "false";
    if (!entry.text.data.trim()) this.#remove(id);
    this.#follow();
  }

  /** Put facts into the entry's data-attributes. */
  mark(id, facts) {
    Object.assign(this.entries.get(id)?.node.dataset ?? {}, facts);
  }

  /** The agent was interrupted; only the first `heard` letters were spoken. */
  cut(id, heard) {
    const entry = this.entries.get(id);
    if (!entry) return;
    const body = entry.text.parentNode;
    const whole = body.textContent;
    entry.text.data = whole.slice(0, heard);
    const rest = whole.slice(heard);
    const unheard = create("s", "unheard", rest.trimStart());
    entry.text.appendData(rest.slice(0, rest.length - unheard.textContent.length)); // no line through a space
    body.replaceChildren(entry.text, unheard);
    entry.node.classList.add("cut");
    entry.node.querySelector(".who").textContent = `${NAMES.agent}, interrupted`;
    entry.node.ariaBusy = "false";
  }

  /** The server knows better which text was heard. */
  recut(id, heard) {
    const entry = this.entries.get(id);
    if (entry?.node.matches(".cut") && entry.text.parentNode.textContent.startsWith(heard)) this.cut(id, heard.length);
  }

  #add(node) {
    this.element.append(node);
    while (this.element.childElementCount > KEEP) {
      const oldest = this.element.firstElementChild;
      // Two sessions may use the same id; only the present one's may be forgotten.
      if (this.entries.get(oldest.dataset.item)?.node === oldest) this.entries.delete(oldest.dataset.item);
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
