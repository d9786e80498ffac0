// openai-node holds a spoken conversation: its typed connection, and a player of the application's own.
//
// It always asks for wss. A server on loopback has no certificate, so the socket underneath is a plain one.

import { connect } from "node:net";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { BYTES_PER_MS, Events, LISTEN_MS, Microphone, RESULT, TOOL, main, version } from "./driving.mjs";

const transcript = (item) => item.content.map((part) => part.transcript ?? "").join("");

await main(async (url, question, interruption) => {
  const { hostname: host, port } = new URL(url);
  const client = new OpenAI({ apiKey: "none", baseURL: `${url}/v1` });
  const plain = { createConnection: () => connect({ host, port: Number(port) }) };
  const call = new OpenAIRealtimeWS({ model: "default", options: plain }, client);
  const events = new Events();
  const errors = [];
  let audioMs = 0;
  let firstAudio = 0;
  call.on("event", (event) => events.add(event));
  call.on("error", (error) => errors.push(String(error.error?.message ?? error)));
  call.on("response.created", () => ([audioMs, firstAudio] = [0, 0]));
  call.on("response.output_audio.delta", ({ delta }) => {
    firstAudio ||= Date.now();
    audioMs += Buffer.from(delta, "base64").length / BYTES_PER_MS;
  });
  await events.until("session.created");
  const tools = [{ type: "function", ...TOOL }];
  call.send({ type: "session.update", session: { type: "realtime", instructions: "Tell a story.", tools } });
  await events.until("session.updated");

  const microphone = new Microphone((pcm) =>
    call.send({ type: "input_audio_buffer.append", audio: pcm.toString("base64") }),
  );
  microphone.say(question);
  await events.until("response.output_audio.delta");
  setTimeout(() => microphone.say(interruption), LISTEN_MS);
  await events.until("input_audio_buffer.speech_started");
  const played = Math.floor(Math.min(Date.now() - firstAudio, audioMs));
  const cut = (await events.until("response.done")).response;
  const item_id = cut.output[0].id;
  call.send({ type: "conversation.item.truncate", item_id, content_index: 0, audio_end_ms: played });
  const truncated = await events.until("conversation.item.truncated");
  call.send({ type: "conversation.item.retrieve", item_id });
  const held = (await events.until("conversation.item.retrieved")).item;
  const { call_id, arguments: given } = await events.until("response.function_call_arguments.done");
  await events.until("response.done");
  const item = { type: "function_call_output", call_id, output: RESULT };
  call.send({ type: "conversation.item.create", item });
  call.send({ type: "response.create" });
  const done = (await events.until("response.done")).response;
  microphone.stop();
  call.close();
  return {
    version: version("openai"),
    user: events.all("conversation.item.input_audio_transcription.completed").map((e) => e.transcript),
    cut: { status: cut.status, text: transcript(cut.output[0]) },
    truncated_ms: truncated.audio_end_ms,
    held: transcript(held),
    called: [JSON.parse(given)],
    answer: { status: done.status, text: transcript(done.output[0]), audio_ms: audioMs },
    errors,
  };
});
