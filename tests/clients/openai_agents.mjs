// @openai/agents holds a spoken conversation: its session cuts and truncates by itself when somebody speaks.

import { RealtimeAgent, RealtimeSession, tool } from "@openai/agents/realtime";
import { BYTES_PER_MS, Events, LISTEN_MS, Microphone, RESULT, TOOL, main, version } from "./driving.mjs";

const transcript = (item) => item.content.map((part) => part.transcript ?? "").join("");

await main(async (url, question, interruption) => {
  const called = [];
  const execute = (given) => called.push(given) && RESULT;
  const opened = tool({ ...TOOL, strict: true, execute });
  const agent = new RealtimeAgent({ name: "teller", instructions: "Tell a story.", tools: [opened] });
  const session = new RealtimeSession(agent, { transport: "websocket" });
  const events = new Events();
  const errors = [];
  let audioMs = 0;
  session.on("transport_event", (event) => events.add(event));
  session.on("audio_start", () => (audioMs = 0));
  session.on("audio", ({ data }) => (audioMs += data.byteLength / BYTES_PER_MS));
  session.on("audio_interrupted", () => events.add({ type: "player is to stop", audioMs }));
  session.on("error", ({ error }) => errors.push(String(error?.error?.message ?? error)));
  await session.connect({ apiKey: "none", url: `${url.replace("http", "ws")}/v1/realtime?model=default` });

  const microphone = new Microphone((pcm) => session.sendAudio(pcm.buffer));
  microphone.say(question);
  await events.until("response.output_audio.delta");
  setTimeout(() => microphone.say(interruption), LISTEN_MS);
  await events.until("player is to stop");
  const cut = (await events.until("response.done")).response;
  const truncated = await events.until("conversation.item.truncated");
  await events.until("response.done"); // of the call
  const done = (await events.until("response.done")).response;
  microphone.stop();
  const history = Object.fromEntries(session.history.map((item) => [item.itemId, item]));
  session.close();
  return {
    version: version("@openai/agents"),
    user: session.history.filter((item) => item.role === "user").map(transcript),
    cut: { status: cut.status, text: transcript(cut.output[0]) },
    truncated_ms: truncated.audio_end_ms,
    held: transcript(history[truncated.item_id]),
    called,
    answer: { status: done.status, text: transcript(history[done.output[0].id]), audio_ms: audioMs },
    errors,
  };
});
