// @openai/agents names an MCP server: it lists the tools, approves a call, and has its result said.

import { RealtimeAgent, RealtimeSession } from "@openai/agents/realtime";
import { hostedMcpTool } from "@openai/agents";
import { Events, version } from "./driving.mjs";

const [url, server, requireApproval] = process.argv.slice(2);
const tools = [hostedMcpTool({ serverLabel: "desk", serverUrl: server, allowedTools: ["add"], requireApproval })];
const agent = new RealtimeAgent({ name: "clerk", instructions: "Add.", tools });
const session = new RealtimeSession(agent, { transport: "websocket", config: { outputModalities: ["text"] } });
const [events, seen] = [new Events(), { version: version("@openai/agents"), errors: [], approved: 0 }];
session.on("transport_event", (event) => events.add(event));
session.on("error", ({ error }) => seen.errors.push(String(error?.error?.message ?? error)));
session.on("mcp_tools_changed", (listed) => (seen.tools = listed.map((tool) => tool.name)));
session.on("mcp_tool_call_completed", (context, of, call) => (seen.output = call.output));
session.on("tool_approval_requested", async (context, of, request) => {
  seen.approved++;
  await session.approve(request.approvalItem);
});
await session.connect({ apiKey: "none", url: `${url.replace("http", "ws")}/v1/realtime?model=default` });
await events.until("mcp_list_tools.completed");
session.sendMessage('call desk_add {"a": 20, "b": 22}');
seen.said = (await events.until("response.output_text.done")).text;
await events.until("response.done");
session.close();
console.log(JSON.stringify(seen));
process.exit(0);
