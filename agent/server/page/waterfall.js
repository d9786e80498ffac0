// The latency of the last answer.

import { milliseconds, steps } from "./steps.js";

/** Draw the parts of a trace, each `{name, ms}`, and the names of its language models into the element. */
export function drawWaterfall(element, { parts, models }) {
  const total = document.createElement("p");
  total.className = "total";
  total.textContent = milliseconds(parts.reduce((sum, { ms }) => sum + ms, 0));
  element.replaceChildren(total, steps(parts, "Parts of the time to the last answer"));
  if (models) element.append(written(models));
}

function written(models) {
  const line = document.createElement("p");
  line.className = "quiet";
  line.textContent = `Language model: ${models.join(", then ")}`;
  return line;
}
