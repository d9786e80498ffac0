// The names of the server's models. Only clients that may call can read them.

import { headers } from "./key.js";

/** Write the names into the list. It stays hidden if the server refuses them. */
export async function showModels(list) {
  const names = await ask();
  if (!names) return;
  for (const place of list.querySelectorAll("[data-model]")) place.textContent = names[place.dataset.model];
  list.hidden = false;
}

async function ask() {
  try {
    const answer = await fetch(new URL("v1/models", document.baseURI), { headers: headers() });
    return answer.ok ? (await answer.json()).data[0].models : null;
  } catch {
    return null; // the page shows the problem when a call begins
  }
}
