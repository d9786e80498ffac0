// Where the time of the last answer went: one bar, cut into named parts, with the numbers below it.

/** Draw `{total_ms, parts: [{name, ms}]}` into the element. */
export function drawWaterfall(element, trace) {
  const total = document.createElement("p");
  total.className = "total";
  total.textContent = milliseconds(trace.total_ms);
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.ariaHidden = "true"; // the list says the same
  const list = document.createElement("ol");
  trace.parts.forEach(({ name, ms }, index) => {
    const hue = `part-${index % 8}`; // as many colours as style.css has
    const piece = document.createElement("span");
    piece.className = hue;
    piece.style.flexGrow = Math.max(0, ms);
    piece.title = `${plain(name)}: ${milliseconds(ms)}`;
    bar.append(piece);

    const row = document.createElement("li");
    const swatch = document.createElement("i");
    swatch.className = hue;
    const value = document.createElement("data");
    value.value = ms;
    value.textContent = milliseconds(ms);
    row.append(swatch, plain(name), value);
    list.append(row);
  });
  element.replaceChildren(total, bar, list);
}

function plain(name) {
  return name.replaceAll("_", " ");
}

function milliseconds(ms) {
  return `${Math.round(ms)} ms`;
}
