// The latency of the last answer: one line for each part, with its bar at the time at which it began.

/** Draw the parts of a trace, each `{name, ms}`, and the names of its language models into the element. */
export function drawWaterfall(element, { parts, models }) {
  const whole = parts.reduce((sum, { ms }) => sum + ms, 0);
  const total = document.createElement("p");
  total.className = "total";
  total.textContent = milliseconds(whole);
  const list = document.createElement("ol");
  let begin = 0;
  for (const { name, ms } of parts) {
    list.append(row(name, ms, (100 * begin) / whole, (100 * ms) / whole));
    begin += ms;
  }
  element.replaceChildren(total, list);
  if (models) element.append(written(models));
}

function written(models) {
  const line = document.createElement("p");
  line.className = "quiet";
  line.textContent = `Language model: ${models.join(", then ")}`;
  return line;
}

function row(name, ms, left, width) {
  const item = document.createElement("li");
  const value = document.createElement("data");
  value.value = ms;
  value.textContent = milliseconds(ms);
  const bar = document.createElement("i"); // only for the eye: the number beside it has the value
  bar.style.setProperty("--left", `${left.toFixed(2)}%`);
  bar.style.setProperty("--width", `${width.toFixed(2)}%`);
  item.append(name, value, bar);
  return item;
}

function milliseconds(ms) {
  return `${Math.round(ms)} ms`;
}
