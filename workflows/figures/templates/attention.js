"use strict";
// Draws the attention of one translation: the view of single heads and the grid of all heads. No libraries, no requests.
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const ROW = 22, GAP = 6, FAINT = 0.01;
const $ = (id) => document.getElementById(id);
const state = { sentence: 0, word: null, pinned: null, side: "query", ...data.start };

function node(name, attributes = {}, parent = null, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}
function element(name, properties = {}, parent = null) {
  const made = Object.assign(document.createElement(name), properties);
  if (parent) parent.append(made);
  return made;
}
const color = (head) => data.colors[head % data.colors.length];
const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}%`;
const current = () => data.sentences[state.sentence];
const sides = (of, kind) => [kind === "encoder" ? of.source : of.written, kind === "decoder" ? of.read : of.source];
const whole = () => $("whole").checked;

// Weights are 16-bit integers in base64: 65535 means 1.
const unpacked = new Map();
function weights(of, kind) {
  const packed = of.weights[kind];
  if (!unpacked.has(packed)) {
    const bytes = Uint8Array.from(atob(packed.data), (sign) => sign.charCodeAt(0));
    unpacked.set(packed, new DataView(bytes.buffer));
  }
  const view = unpacked.get(packed), [, heads, rows, columns] = packed.shape;
  return (layer, head, row, column) =>
    view.getUint16(2 * (((layer * heads + head) * rows + row) * columns + column), true) / 65535;
}
// The rows of one side: pieces or whole words.
function items(side) {
  const spans = whole() ? side.words : side.texts.map((_, i) => [i, i + 1]);
  let y = 0;
  return spans.map(([begin, end]) => {
    if (begin > 0) y += ROW + (side.words.some((word) => word[0] === begin) ? GAP : 0);
    return { begin, end, y, text: side.texts.slice(begin, end).join(""), mark: side.separators.includes(begin) };
  });
}
// The attention between two items: the mean over the query's pieces of the sum over the key's.
function matrix(of, kind, layer, head) {
  const weight = weights(of, kind), [queries, keys] = sides(of, kind).map(items);
  return queries.map((query) => keys.map((key) => {
    let sum = 0;
    for (let row = query.begin; row < query.end; row++)
      for (let column = key.begin; column < key.end; column++) sum += weight(layer, head, row, column);
    return sum / (query.end - query.begin);
  }));
}
function shape(kind) { return current().weights[kind].shape; }

function drawView() {
  const of = current(), [left, right] = sides(of, state.kind).map(items), width = $("view").clientWidth;
  if (width < 200) return; // not laid out yet
  const from = Math.round(Math.min(width, 736) * 0.36), to = Math.round(Math.min(width, 736) * 0.6);
  const height = Math.max(left.at(-1).y, right.at(-1).y) + ROW + 4;
  const focused = document.activeElement?.dataset?.place;
  $("view").textContent = "";
  const drawing = node("svg", { width: "100%", height, role: "group", "aria-label": `Attention of ${description()}` }, $("view"));
  const heads = [...state.heads].sort((a, b) => a - b);
  const matrices = heads.map((head) => matrix(of, state.kind, state.layer, head));
  const chosen = state.word !== null, onQuery = state.side === "query";
  const lines = node("g", { "stroke-width": chosen ? 2.2 : 1.6, "stroke-linecap": "round" }, drawing);
  matrices.forEach((rows, order) => {
    const shift = heads.length > 1 ? 7 * (order / (heads.length - 1) - 0.5) : 0;
    rows.forEach((row, i) => row.forEach((weight, j) => {
      if (weight < FAINT || (chosen && (onQuery ? i : j) !== state.word)) return;
      const y1 = left[i].y + ROW / 2 + shift, y2 = right[j].y + ROW / 2 + shift;
      node("line", { x1: from, y1, x2: to, y2, stroke: color(heads[order]), "stroke-opacity": Math.min(1, weight).toFixed(3) }, lines);
    }));
  });
  const square = Math.min(9, 60 / heads.length);
  const squares = chosen ? square * heads.length + 4 : 0;
  const columns = [[left, "query", from - 6 - (onQuery ? 0 : squares), "end"], [right, "key", to + 6 + (onQuery ? squares : 0), "start"]];
  for (const [list, side, x, anchor] of columns) {
    list.forEach((item, i) => {
      const on = chosen && state.side === side && state.word === i;
      const group = node("g", {
        class: `word${on ? " on" : ""}${item.mark ? " mark" : ""}${chosen && state.side === side && !on ? " dim" : ""}`,
        tabindex: i === (chosen && state.side === side ? state.word : 0) ? 0 : -1, role: "button", "aria-pressed": on,
        "aria-label": `${item.text}, ${side === "query" ? "attends" : "is attended to"}`, "data-place": `${side}${i}`,
      }, drawing);
      const at = side === "query" ? 0 : to + 2, room = side === "query" ? from - 2 : Math.min(width, 736) - to - 2;
      node("rect", { class: "back", x: at, y: item.y, width: room, height: ROW, rx: 3 }, group);
      const longest = Math.max(3, Math.floor((room - 8 - squares) / 8));
      const shown = item.text.length > longest ? item.text.slice(0, longest - 1) + "…" : item.text;
      node("text", { x, y: item.y + ROW / 2, "text-anchor": anchor, "dominant-baseline": "central" }, group, shown);
      if (shown !== item.text) node("title", {}, group, item.text);
      if (chosen && state.side !== side)
        matrices.forEach((rows, order) => {
          const weight = onQuery ? rows[state.word][i] : rows[i][state.word];
          const start = side === "query" ? from - 2 - squares : to + 4;
          if (weight >= FAINT) node("rect", { x: start + square * order, y: item.y + 4, width: square, height: ROW - 8, fill: color(heads[order]), "fill-opacity": Math.min(1, weight).toFixed(3) }, group);
        });
      group.addEventListener("mouseenter", () => { if (state.pinned === null) look(side, i); });
      group.addEventListener("click", () => pin(side, i));
      group.addEventListener("focus", () => { if (state.word !== i || state.side !== side) look(side, i); });
      group.addEventListener("keydown", (event) => keys(event, side, i, list.length));
    });
    if (!whole()) bars(drawing, side === "query" ? sides(of, state.kind)[0] : sides(of, state.kind)[1], list, side === "query" ? from - 2 : to + 2);
  }
  drawing.addEventListener("mouseleave", () => { if (state.pinned === null && state.word !== null) look(state.side, null); });
  if (focused) drawing.querySelector(`[data-place="${focused}"]`)?.focus({ preventScroll: true });
  tell(matrices, heads, left, right);
}
function bars(drawing, side, list, x) {
  for (const [begin, end] of side.words)
    if (end - begin > 1) node("line", { class: "bar", x1: x, x2: x, y1: list[begin].y + 2, y2: list[end - 1].y + ROW - 2 }, drawing);
}
function look(side, word) {
  if (state.side === side && state.word === word) return;
  Object.assign(state, { side, word }); drawView();
}
function pin(side, word) {
  const same = state.pinned === `${side}${word}`;
  state.pinned = same ? null : `${side}${word}`;
  look(side, same ? null : word);
}
function keys(event, side, word, length) {
  const step = { ArrowDown: 1, ArrowUp: -1, Home: -word, End: length - 1 - word }[event.key];
  if (step !== undefined) {
    event.preventDefault();
    const next = Math.max(0, Math.min(length - 1, word + step));
    state.pinned = `${side}${next}`;
    look(side, next);
    $("view").querySelector(`[data-place="${side}${next}"]`).focus();
  } else if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pin(side, word); }
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    event.preventDefault();
    $("view").querySelector(`[data-place^="${event.key === "ArrowLeft" ? "query" : "key"}"][tabindex="0"]`)?.focus();
  } else if (event.key === "Escape") { state.pinned = null; look(side, null); }
}
const description = () => `${data.kinds[state.kind]}, layer ${state.layer + 1}, heads ${[...state.heads].sort((a, b) => a - b).map((head) => head + 1).join(", ") || "none"}`;
// Describes the lines in words, for screen readers.
function tell(matrices, heads, left, right) {
  if (state.word === null) { $("shown").textContent = `${description()}. Hover over a word, or select one with Tab and the arrow keys. Click to pin it.`; return; }
  const onQuery = state.side === "query", others = onQuery ? right : left;
  const most = heads.map((head, order) => {
    const row = onQuery ? matrices[order][state.word] : matrices[order].map((one) => one[state.word]);
    const best = row.map((weight, i) => [weight, i]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([weight]) => weight >= 0.05);
    return `head ${head + 1}: ${best.map(([weight, i]) => `${others[i].text} ${percent(weight)}`).join(", ") || "no weight above 5%"}`;
  });
  $("shown").textContent = `“${(onQuery ? left : right)[state.word].text}” ${onQuery ? "attends to" : "is attended to by"}: ${most.join("; ")}.`;
}

function drawGrid() {
  const of = current(), [layers, heads] = shape(state.kind), table = $("grid");
  table.textContent = "";
  const size = Math.max(44, Math.min(96, Math.floor(($("gridbox").clientWidth - 60) / heads) - 8));
  const top = table.createTHead().insertRow();
  element("th", { textContent: "layer" }, top);
  for (let head = 0; head < heads; head++) element("th", { textContent: head + 1, scope: "col" }, top);
  const body = table.createTBody();
  for (let layer = 0; layer < layers; layer++) {
    const row = body.insertRow();
    element("th", { textContent: layer + 1, scope: "row" }, row);
    for (let head = 0; head < heads; head++) {
      const pressed = layer === state.layer && state.heads.has(head);
      const button = element("button", { type: "button" }, row.insertCell());
      button.setAttribute("aria-label", `${data.kinds[state.kind]}, layer ${layer + 1}, head ${head + 1}`);
      button.setAttribute("aria-pressed", pressed);
      button.addEventListener("click", () => { open(state.kind, layer, head); });
      thumbnail(button, matrix(of, state.kind, layer, head), color(head), size);
    }
  }
}
function thumbnail(button, rows, stroke, size) {
  const scale = window.devicePixelRatio || 1;
  const canvas = element("canvas", { width: size * scale, height: size * scale }, button);
  canvas.style.width = canvas.style.height = `${size}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.strokeStyle = stroke;
  const n = Math.max(rows.length, rows[0].length), y = (i) => 3 + (size - 6) * (i + 0.5) / n;
  rows.forEach((row, i) => row.forEach((weight, j) => {
    if (weight < 0.05) return;
    pen.globalAlpha = Math.min(1, weight);
    pen.beginPath(); pen.moveTo(4, y(i)); pen.lineTo(size - 4, y(j)); pen.stroke();
  }));
}
function open(kind, layer, head) {
  Object.assign(state, { kind, layer, heads: new Set([head]), word: null, pinned: null });
  draw();
  $("heading").scrollIntoView({ block: "start" });
  $("heading").focus({ preventScroll: true });
}

function controls() {
  const of = current(), [layers, heads] = shape(state.kind);
  $("source").textContent = of.sentence;
  $("translation").textContent = of.translation;
  $("score").textContent = of.score.toFixed(3);
  fill($("sentence"), data.sentences.map((one, i) => [i, one.sentence]), state.sentence);
  fill($("kind"), Object.entries(data.kinds), state.kind);
  fill($("layer"), Array.from({ length: layers }, (_, i) => [i, `layer ${i + 1}`]), state.layer);
  $("heads").textContent = "";
  for (let head = 0; head < heads; head++) {
    const label = element("label", {}, $("heads"));
    const box = element("input", { type: "checkbox", checked: state.heads.has(head) }, label);
    box.setAttribute("aria-label", `head ${head + 1}`);
    const swatch = node("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, label);
    node("rect", { width: 1, height: 1, fill: color(head) }, swatch);
    label.append(String(head + 1));
    box.addEventListener("change", () => { state.heads[box.checked ? "add" : "delete"](head); drawView(); marks(); });
    label.addEventListener("dblclick", () => { state.heads = new Set([head]); draw(); });
  }
}
function marks() {
  document.querySelectorAll("#grid button").forEach((button, i) => {
    const heads = shape(state.kind)[1];
    button.setAttribute("aria-pressed", Math.floor(i / heads) === state.layer && state.heads.has(i % heads));
  });
}
function fill(select, options, value) {
  select.textContent = "";
  for (const [key, text] of options) element("option", { value: key, textContent: text, selected: String(key) === String(value) }, select);
}
function draw() { controls(); drawView(); drawGrid(); }

$("sentence").addEventListener("change", (event) => { Object.assign(state, { sentence: Number(event.target.value), word: null, pinned: null }); draw(); });
$("kind").addEventListener("change", (event) => { Object.assign(state, { kind: event.target.value, word: null, pinned: null }); draw(); });
$("layer").addEventListener("change", (event) => { state.layer = Number(event.target.value); draw(); });
$("whole").addEventListener("change", () => { Object.assign(state, { word: null, pinned: null }); draw(); });
$("all").addEventListener("click", () => {
  const heads = shape(state.kind)[1];
  state.heads = new Set(state.heads.size === heads ? [] : Array.from({ length: heads }, (_, i) => i));
  draw();
});
document.querySelectorAll("[data-open]").forEach((button) => button.addEventListener("click", () => {
  const [kind, layer, head] = button.dataset.open.split(" ");
  open(kind, Number(layer) - 1, Number(head) - 1);
}));
let width = 0;
new ResizeObserver(() => { if ($("view").clientWidth !== width) { width = $("view").clientWidth; draw(); } }).observe($("view"));

state.heads = new Set(state.heads);
if (state.word !== null) state.pinned = `${state.side}${state.word}`;
draw();
