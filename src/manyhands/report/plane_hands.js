// Hands on the map: mouse, touch and keys.

const held = new Map(); // the pointers that are down, and where each was last seen
let travelled = 0;

function spot(event) {
  const box = canvas.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function hover(i) {
  if (i === hovered) return;
  hovered = i;
  canvas.classList.toggle("over", i >= 0);
  redraw();
}

canvas.addEventListener("pointerdown", event => {
  if (event.button > 0) return;
  canvas.setPointerCapture(event.pointerId);
  held.set(event.pointerId, spot(event));
  if (held.size === 1) travelled = 0;
  canvas.classList.add("held");
});

canvas.addEventListener("pointermove", event => {
  const at = spot(event), before = held.get(event.pointerId);
  if (!before) return hover(wordAt(at.x, at.y));
  const others = [...held].filter(([id]) => id !== event.pointerId).map(([, where]) => where);
  held.set(event.pointerId, at);
  travelled += Math.hypot(at.x - before.x, at.y - before.y);
  if (others.length) {
    const [other] = others, apart = p => Math.max(1, Math.hypot(p.x - other.x, p.y - other.y));
    zoomBy(apart(at) / apart(before), (at.x + other.x) / 2, (at.y + other.y) / 2);
  }
  if (travelled < CLICK) return;
  hover(-1);
  const share = 1 / held.size; // of two fingers, each moves the map by half of its own way
  moveTo({ x: view.x - (at.x - before.x) / view.scale * share, y: view.y - (at.y - before.y) / view.scale * share });
});

function release(event) {
  const was = held.delete(event.pointerId);
  if (!held.size) canvas.classList.remove("held");
  if (!was || held.size || event.type !== "pointerup" || travelled >= CLICK) return;
  const at = spot(event);
  choose(wordAt(at.x, at.y), false);
}

canvas.addEventListener("pointerup", release);
canvas.addEventListener("pointercancel", release);
canvas.addEventListener("pointerleave", () => hover(-1));

canvas.addEventListener("wheel", event => {
  event.preventDefault();
  const at = spot(event), lines = event.deltaMode === 1 ? 16 : 1;
  const turn = Math.max(-150, Math.min(150, event.deltaY * lines));
  zoomBy(Math.exp(-turn * (event.ctrlKey ? 0.01 : 0.002)), at.x, at.y);
}, { passive: false });

const KEYS = {
  ArrowLeft: () => step(-1, 0),
  ArrowRight: () => step(1, 0),
  ArrowUp: () => step(0, -1),
  ArrowDown: () => step(0, 1),
  "+": () => zoomBy(1.4),
  "=": () => zoomBy(1.4),
  "-": () => zoomBy(1 / 1.4),
  0: () => showAll(),
};

function step(right, down) {
  moveTo({ x: view.x + right * wide / 8 / view.scale, y: view.y + down * high / 8 / view.scale });
}

function showAll() {
  flyTo(whole());
}

canvas.addEventListener("keydown", event => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});

document.getElementById("closer").addEventListener("click", () => zoomBy(1.5));
document.getElementById("farther").addEventListener("click", () => zoomBy(1 / 1.5));
document.getElementById("whole").addEventListener("click", showAll);
