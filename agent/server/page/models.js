// The names of the server's models. Only clients that may call can read them.

import { headers } from "./key.js";

/** The default model. */
const SMALL = "qwen2.5-coder-0.5b-instruct";

/** Write the names into the list, and name the better model to users of a small one. The list stays hidden if the server refuses them. */
export async function showModels(list, larger) {
  const names = await ask();
  if (!names) return;
  for (const place of list.querySelectorAll("[data-model]")) place.textContent = names[place.dataset.model];
  list.hidden = false;
  larger.hidden = names.llm !== SMALL;
}

async function ask() {
  try {
    const answer = await fetch(new URL("v1/models", document.baseURI), { headers: headers() });
    return answer.ok ? (await answer.json()).data[0].models : null;
  } catch {
    return null; // the page shows the problem when a call begins
  }
}
