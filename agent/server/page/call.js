// One call: the loudspeaker, the microphone if there is one, the connection, and the conversation. Everything it opens
// is closed when the call ends.

import { openMicrophone, openPlayer } from "./audio.js";
import { stayAwake } from "./awake.js";
import { Connection } from "./connection.js";
import { Conversation } from "./conversation.js";
import { closeProblem, lostMicrophone, slowNetwork, startProblem, waitingProblem } from "./problems.js";

export class Call {
  /**
   * `views`: transcript, showTrace, showState, showLevels, showProblem, showMicrophone. `devices`: the choices, as
   * {microphone, speaker}. `onEnd(problem)`: the call ended by itself. `history`: of the call that it continues.
   */
  constructor(views, devices, onEnd, history) {
    Object.assign(this, { views, devices, onEnd, history });
    this.ending = new AbortController();
    this.signal = this.ending.signal;
    this.microphone = null; // {settings, mute}
    this.muted = false;
  }

  /** Open it: by voice, or without a microphone and with something typed. */
  async open({ voice, text }) {
    const { signal } = this;
    Object.assign(this, { voice, text }); // for a call that continues this one
    stayAwake(signal);
    try {
      const opening = openPlayer({
        signal,
        device: this.devices.speaker.chosen,
        onReport: (report) => this.conversation?.played(report),
      });
      [this.player] = await Promise.all([opening, voice && this.#openMicrophone()]);
      // Connect only now: a user who is deciding about the microphone must not occupy a line on the server.
      signal.throwIfAborted();
      this.#connect();
    } catch (error) {
      const problem = await startProblem(error);
      if (!signal.aborted) this.onEnd(problem);
    }
  }

  #connect() {
    const { transcript, showTrace, showState, showLevels, showProblem } = this.views;
    this.conversation = new Conversation({
      history: this.history,
      send: (event) => this.connection.send(event),
      player: this.player,
      transcript,
      showTrace,
      showState,
      now: () => performance.now(),
      showLevel: (level) => showLevels({ agent: level }),
      showProblem,
      wait: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
    });
    if (this.text) this.conversation.type(this.text);
    this.text = "";
    this.connection = new Connection({
      signal: this.signal,
      played: () => this.conversation.speech.position(),
      onEvent: (event) => this.conversation.receive(event),
      onSlow: () => showProblem(slowNetwork()),
      onLost: (close) => {
        this.conversation.lost();
        showState(this.conversation.state);
        showProblem(waitingProblem(close));
      },
      onGone: async (close) => {
        const settled = this.conversation.settle(); // another call may continue this one
        const problem = await closeProblem(close);
        await settled;
        if (!this.signal.aborted) this.onEnd(problem);
      },
    });
  }

  async #openMicrophone() {
    this.microphoneEnding?.abort();
    this.microphoneEnding = new AbortController();
    const signal = AbortSignal.any([this.signal, this.microphoneEnding.signal]);
    this.microphone = await openMicrophone({
      signal,
      device: this.devices.microphone.chosen,
      onFrame: (pcm, level) => {
        this.views.showLevels({ user: level });
        this.connection?.sendAudio(pcm);
      },
      onLost: () => {
        this.#closeMicrophone();
        this.views.showProblem(lostMicrophone());
      },
    });
    this.microphone.mute(this.muted);
    this.#showMicrophone();
    this.devices.microphone.refresh(); // the browser now gives the names
    this.devices.speaker.refresh();
  }

  #closeMicrophone() {
    this.microphoneEnding.abort();
    this.microphone = null;
    this.views.showLevels({ user: 0 });
    this.#showMicrophone();
  }

  #showMicrophone() {
    this.views.showMicrophone({ settings: this.microphone?.settings ?? null, muted: this.muted });
  }

  /** Mute or unmute the microphone; open it if it is not open. */
  async toggleMicrophone() {
    if (!this.microphone) return this.#reopen();
    this.muted = !this.muted;
    this.microphone.mute(this.muted);
    this.#showMicrophone();
  }

  /** Switch to the microphone that the user chose. */
  changeMicrophone() {
    if (this.microphone) this.#reopen();
  }

  async #reopen() {
    this.muted = false;
    const { showProblem } = this.views;
    const opening = this.#openMicrophone();
    const { signal } = this.microphoneEnding; // of this microphone: the user may choose another while the browser still asks
    try {
      await opening;
      showProblem(null);
    } catch (error) {
      if (this.signal.aborted || signal.aborted) return;
      this.#closeMicrophone();
      const problem = await startProblem(error);
      if (!this.signal.aborted) showProblem(problem);
    }
  }

  /** Switch to the loudspeaker that the user chose. */
  async changeSpeaker(device) {
    try {
      await this.player?.through(device);
    } catch (error) {
      this.views.showProblem(await startProblem(error));
    }
  }

  type(text) {
    this.conversation?.type(text);
  }

  /** Stop the answer. */
  interrupt() {
    this.conversation?.interrupt();
  }

  tryNow() {
    this.connection?.tryNow();
  }

  end() {
    this.ending.abort();
  }
}
