// What the drivers in JavaScript share: a microphone that never stops, events to wait for, and the report.

import { readFileSync } from "node:fs";

export const BYTES_PER_MS = 48; // 16-bit samples at 24 kHz
const FRAME_MS = 40;
const PATIENCE_MS = 30_000 * Number(process.env.REJOINDER_TEST_PATIENCE ?? 1);
export const LISTEN_MS = 2_000; // of the answer are heard before somebody speaks over it

export const RESULT = "It was opened in 1883.";

// What the second question is answered with.
export const TOOL = {
  name: "opened",
  description: "Tells when a bridge was opened.",
  parameters: {
    type: "object",
    properties: { bridge: { type: "string" } },
    required: ["bridge"],
    additionalProperties: false,
  },
};

// Sends what is said, and silence in between, in real time, as a microphone does.
export class Microphone {
  #speech = Buffer.alloc(0);
  #timer;

  constructor(send) {
    const size = FRAME_MS * BYTES_PER_MS;
    const started = Date.now();
    let frames = 0;
    this.#timer = setInterval(() => {
      for (; frames * FRAME_MS <= Date.now() - started; frames++) {
        const frame = Buffer.alloc(size);
        this.#speech.copy(frame, 0, 0, size);
        this.#speech = this.#speech.subarray(size);
        send(frame);
      }
    }, FRAME_MS / 2);
  }

  say(pcm) {
    this.#speech = Buffer.concat([this.#speech, pcm]);
  }

  stop() {
    clearInterval(this.#timer);
  }
}

// Keeps every event, and hands over the next one of a kind that nobody has waited for yet.
export class Events {
  seen = [];
  #read = 0;
  #wake = () => {};

  add(event) {
    this.seen.push(event);
    this.#wake();
  }

  async until(type) {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      while (this.#read < this.seen.length) {
        const event = this.seen[this.#read++];
        if (event.type === type) return event;
      }
      if (Date.now() > deadline) throw new Error(`no ${type}, only ${this.seen.map((e) => e.type)}`);
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, 1_000);
      });
    }
  }

  all(type) {
    return this.seen.filter((event) => event.type === type);
  }
}

// Runs `node DRIVER URL QUESTION INTERRUPTION`: the server's http address, and two files of 24 kHz PCM.
export async function main(drive) {
  const [url, question, interruption] = process.argv.slice(2);
  const seen = await drive(url, readFileSync(question), readFileSync(interruption));
  console.log(JSON.stringify(seen));
  process.exit(0);
}

export function version(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}
