// Which models answer: the server tells their names to those who may call it.

import { headers } from "./key.js";

/** Write the names into the list, which stays hidden where the server does not tell them. */
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
    return null; // the page says so when a call is begun
  }
}
