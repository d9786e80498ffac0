// The parts of an answer's latency: a line for each, with its bar at the time at which it began.

/** Return the list of parts, each `{name, ms}`. `label`: its name for screen readers. */
export function steps(parts, label) {
  const whole = parts.reduce((sum, { ms }) => sum + ms, 0) || 1;
  const list = document.createElement("ol");
  list.className = "steps";
  list.ariaLabel = label;
  let begin = 0;
  for (const { name, ms } of parts) {
    list.append(step(name, ms, (100 * begin) / whole, (100 * ms) / whole));
    begin += ms;
  }
  return list;
}

export function milliseconds(ms) {
  return `${Math.round(ms)} ms`;
}

function step(name, ms, left, width) {
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
