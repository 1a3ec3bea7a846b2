// The map: words on a canvas, zoomed by wheel or pinch, moved by drag.

const data = JSON.parse(document.getElementById("data").textContent);
const { words, x, y, neighbours, cosines } = data;
const canvas = document.getElementById("canvas");
const pen = canvas.getContext("2d");
const still = matchMedia("(prefers-reduced-motion: reduce)");

const FAMILY = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const LARGEST = 17, SMALLEST = 11.5, LEADING = 1.25, GAP = 5, LONGEST = 28;
const MARGIN = 36, MOST_ZOOM = 60, REACH = 14, CLICK = 5, FLIGHT = 420, BOLD = 1.12, FOCUS = 1.3;

const view = { x: 0, y: 0, scale: 1 }; // the middle of the canvas in the plane; pixels to a step
let wide = 0, high = 0, fitting = 1, untouched = true;
let chosen = -1, hovered = -1, asked = false, flight = 0;
let colours = {};

// The more frequent a word, the larger it is written.
const sizes = words.map((_, i) => LARGEST - (LARGEST - SMALLEST) * Math.log1p(i) / Math.log1p(Math.max(words.length, 2)));
const labels = words.map(word => {
  const letters = [...word];
  return letters.length > LONGEST ? letters.slice(0, LONGEST - 1).join("") + "…" : word;
});
const widths = labels.map((label, i) => {
  pen.font = font(i);
  return pen.measureText(label).width;
});
const appears = scales();

function font(i, weight = 400, larger = 1) {
  return `${weight} ${(sizes[i] * larger).toFixed(1)}px ${FAMILY}`;
}

// The scale from which on each label is drawn. It stays for all larger ones, and never meets the label of a
// more frequent word: two boxes part at the scale `parts`; if the other one appears later, it gives way itself.
function scales() {
  const from = new Float64Array(words.length);
  for (let i = 0; i < words.length; i++) {
    let scale = 0;
    for (let j = 0; j < i; j++) {
      const across = ((widths[i] + widths[j]) / 2 + GAP) / Math.abs(x[i] - x[j]);
      const down = ((sizes[i] + sizes[j]) / 2 * LEADING) / Math.abs(y[i] - y[j]);
      const parts = Math.min(across, down);
      if (parts > scale && from[j] < parts) scale = parts;
    }
    from[i] = scale;
  }
  return from;
}

// 0 before a label appears, 1 soon after.
function shown(i) {
  return Math.min(1, Math.max(0, (view.scale / appears[i] - 1) / 0.06));
}

function place(i) {
  return { x: (x[i] - view.x) * view.scale + wide / 2, y: (y[i] - view.y) * view.scale + high / 2 };
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["paper", "ink", "quiet", "dot", "accent"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
  redraw();
}

function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    draw();
  });
}

function draw() {
  const ratio = devicePixelRatio || 1;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, wide, high);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.lineJoin = "round";
  const near = chosen < 0 ? [] : neighbours[chosen];
  const front = [...new Set([chosen, hovered, ...near])].filter(i => i >= 0);
  const boxes = arrange(front);
  drawOthers(new Set(front), boxes, chosen < 0 ? 1 : 0.3);
  if (chosen >= 0) drawLines(near);
  for (const i of front) drawDot(i, boxes.get(i));
  for (const i of front) drawLabel(i, boxes.get(i));
  pen.globalAlpha = 1;
}

function drawOthers(front, boxes, strength) {
  const taken = [...boxes.values()].filter(Boolean);
  const written = [];
  pen.fillStyle = colours.dot;
  for (let i = words.length - 1; i >= 0; i--) {
    const at = place(i);
    if (front.has(i) || !inside(at, widths[i])) continue;
    const hidden = taken.some(box => meet(box, boxAround(i, at)));
    const strong = hidden ? 0 : shown(i);
    if (strong) written.push([i, at, strong]);
    if (strong === 1) continue;
    pen.globalAlpha = 0.55 * strength * (1 - strong);
    pen.beginPath();
    pen.arc(at.x, at.y, 1.1 + sizes[i] / 17, 0, 7);
    pen.fill();
  }
  for (const [i, at, strong] of written) {
    pen.font = font(i);
    write(i, at, colours.ink, strong * strength, 3);
  }
}

function drawLines(near) {
  const from = place(chosen);
  pen.strokeStyle = colours.accent;
  near.forEach((i, rank) => {
    const to = place(i);
    pen.globalAlpha = 0.25 + 0.5 * Math.max(0, cosines[chosen][rank] / 1000);
    pen.lineWidth = 1.2;
    pen.beginPath();
    pen.moveTo(from.x, from.y);
    pen.lineTo(to.x, to.y);
    pen.stroke();
  });
}

// A word that stands out has a dot where its label stands elsewhere.
function drawDot(i, box) {
  const at = place(i);
  if (box && box.x === at.x && box.y === at.y) return;
  pen.globalAlpha = 1;
  pen.fillStyle = colours.accent;
  pen.beginPath();
  pen.arc(at.x, at.y, 3, 0, 7);
  pen.fill();
}

function drawLabel(i, box) {
  if (!box) return;
  pen.font = i === chosen ? font(i, 700, FOCUS) : font(i, 550);
  write(i, box, i === chosen || i === hovered ? colours.accent : box.beyond ? colours.quiet : colours.ink, 1, 5);
}

function write(i, at, colour, strength, halo) {
  pen.globalAlpha = strength;
  pen.lineWidth = halo;
  pen.strokeStyle = colours.paper;
  pen.strokeText(labels[i], at.x, at.y);
  pen.fillStyle = colour;
  pen.fillText(labels[i], at.x, at.y);
}

// Boxes of the words that stand out, none over another: on the word, else beside it, else none at all.
function arrange(front) {
  const boxes = new Map();
  for (const i of front) {
    const at = atEdge(i), box = boxAround(i, at, i === chosen ? BOLD * FOCUS : BOLD);
    const up = box.high, aside = box.wide / 2 + 8;
    const tries = [[0, 0], [0, -up], [0, up], [aside, 0], [-aside, 0], [aside, -up], [-aside, up], [aside, up], [-aside, -up]];
    const free = tries
      .map(([right, down]) => ({ ...box, x: at.x + right, y: at.y + down }))
      .find(one => [...boxes.values()].every(other => !other || !meet(one, other)));
    boxes.set(i, free ?? null);
  }
  return boxes;
}

// Where a word stands; a neighbour beyond the edge is named where the line to it leaves the map.
function atEdge(i) {
  const at = place(i);
  if (chosen < 0 || i === chosen) return at;
  const from = place(chosen), aside = widths[i] * BOLD / 2 + 10, up = sizes[i] + 4;
  if (from.x < aside || from.x > wide - aside || from.y < up || from.y > high - up) return at;
  const right = at.x - from.x, down = at.y - from.y;
  const part = Math.min(
    right > 0 ? (wide - aside - from.x) / right : right < 0 ? (aside - from.x) / right : 1,
    down > 0 ? (high - up - from.y) / down : down < 0 ? (up - from.y) / down : 1,
  );
  return part < 1 ? { x: from.x + right * part, y: from.y + down * part, beyond: true } : at;
}

function boxAround(i, at, stretch = 1) {
  return { ...at, wide: widths[i] * stretch + GAP, high: sizes[i] * LEADING * (stretch > BOLD ? FOCUS : 1) };
}

function meet(a, b) {
  return Math.abs(a.x - b.x) < (a.wide + b.wide) / 2 && Math.abs(a.y - b.y) < (a.high + b.high) / 2;
}

function inside(at, margin) {
  return at.x > -margin && at.x < wide + margin && at.y > -20 && at.y < high + 20;
}

// The word under a point: the one whose label is there, else the nearest dot.
function wordAt(px, py) {
  const point = { x: px, y: py, wide: 0, high: 0 };
  const near = chosen < 0 ? [] : neighbours[chosen];
  const boxes = arrange([...new Set([chosen, ...near])].filter(i => i >= 0));
  for (const [i, box] of boxes) if (box && meet(point, box)) return i;
  let best = -1, least = REACH;
  for (let i = 0; i < words.length; i++) {
    const at = place(i);
    if (Math.abs(at.y - py) > 20) continue;
    if (shown(i) > 0.5 && meet(point, boxAround(i, at))) return i;
    const far = Math.hypot(at.x - px, at.y - py);
    if (far < least) [best, least] = [i, far];
  }
  return best;
}

function zoomBy(factor, px = wide / 2, py = high / 2) {
  const scale = Math.min(fitting * MOST_ZOOM, Math.max(fitting * 0.6, view.scale * factor));
  const moved = 1 / view.scale - 1 / scale;
  moveTo({ x: view.x + (px - wide / 2) * moved, y: view.y + (py - high / 2) * moved, scale });
}

function moveTo(where) {
  cancelAnimationFrame(flight);
  untouched = false;
  Object.assign(view, where);
  redraw();
}

function flyTo(where) {
  cancelAnimationFrame(flight);
  untouched = false;
  if (still.matches || !wide) return moveTo(where);
  const from = { ...view }, began = performance.now();
  const step = now => {
    const part = Math.min(1, Math.max(0, now - began) / FLIGHT), eased = 1 - (1 - part) ** 3;
    view.scale = from.scale * (where.scale / from.scale) ** eased;
    view.x = from.x + (where.x - from.x) * eased;
    view.y = from.y + (where.y - from.y) * eased;
    draw();
    if (part < 1) flight = requestAnimationFrame(step);
  };
  flight = requestAnimationFrame(step);
}

// The whole plane in the middle of the canvas.
function whole() {
  const [left, right] = ends(x), [top, bottom] = ends(y);
  fitting = Math.max(1e-6, Math.min((wide - 2 * MARGIN) / (right - left || 1), (high - 2 * MARGIN) / (bottom - top || 1)));
  return { x: (left + right) / 2, y: (top + bottom) / 2, scale: fitting };
}

function ends(values) {
  return [Math.min(...values), Math.max(...values)];
}

// A word with most of its neighbours; a few may stand far away.
function around(i) {
  const far = neighbours[i].map(j => Math.max(Math.abs(x[j] - x[i]) / wide, Math.abs(y[j] - y[i]) / high));
  far.sort((a, b) => a - b);
  const reach = far[Math.floor(far.length * 0.6)] || 0;
  const scale = Math.min(fitting * 9, Math.max(fitting * 2, 0.38 / (reach || 1e-9)));
  return { x: x[i], y: y[i], scale };
}

function resize() {
  const box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
  [wide, high] = [box.width, box.height];
  [canvas.width, canvas.height] = [Math.round(wide * ratio), Math.round(high * ratio)];
  const all = whole();
  if (untouched) Object.assign(view, all);
  draw();
}
