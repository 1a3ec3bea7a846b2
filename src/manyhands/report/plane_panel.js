// What stands beside the map: the search, the chosen word and its neighbours, the address of the word.

const SUGGESTIONS = 8, STARTS = 8;
const search = document.getElementById("search");
const list = document.getElementById("suggestions");
const nothing = document.getElementById("nothing");
const panel = document.getElementById("panel");
const folded = words.map(word => word.toLowerCase());
const numbers = new Map();
words.forEach((word, i) => numbers.has(word) || numbers.set(word, i));
let offered = [], active = -1;

// Words come in as text, never as markup.
function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function choose(i, fly) {
  const inPanel = panel.contains(document.activeElement);
  chosen = i;
  hovered = -1;
  panel.replaceChildren(...(i < 0 ? welcome() : portrait(i)));
  panel.parentElement.scrollTop = 0;
  if (inPanel) panel.querySelector("h2, button")?.focus();
  const wanted = i < 0 ? "" : words[i];
  if (addressed() !== wanted) location.hash = encodeURIComponent(wanted);
  if (i >= 0 && fly) flyTo(around(i));
  else redraw();
}

function portrait(i) {
  const head = element("h2", "", words[i]);
  head.tabIndex = -1;
  const rank = element("p", "quiet", `word ${(i + 1).toLocaleString("en")} of ${words.length.toLocaleString("en")}`);
  const near = element("ol");
  near.setAttribute("aria-label", "Its nearest words, by cosine");
  neighbours[i].forEach((j, place) => {
    const cosine = cosines[i][place] / 1000;
    const button = wordButton(j, "neighbour");
    button.replaceChildren(
      element("span", "word", words[j]), element("span", "cosine", cosine.toFixed(3)), element("span", "bar"));
    button.style.setProperty("--share", `${Math.max(0, cosine) * 100}%`);
    const item = element("li");
    item.append(button);
    near.append(item);
  });
  return [head, rank, near];
}

function welcome() {
  const starts = element("div", "starts");
  const long = words.map((_, i) => i).filter(i => [...words[i]].length >= 5 && [...words[i]].length <= 12);
  const every = Math.max(1, Math.floor(long.length / STARTS));
  for (let place = every >> 1; place < long.length && starts.children.length < STARTS; place += every) {
    starts.append(wordButton(long[place]));
  }
  return [element("p", "quiet", "Click a word to see its neighbours, or search for one. To begin with:"), starts];
}

function wordButton(i, className) {
  const button = element("button", className, words[i]);
  button.type = "button";
  button.addEventListener("click", () => choose(i, true));
  for (const event of ["mouseenter", "focus"]) button.addEventListener(event, () => hover(i));
  for (const event of ["mouseleave", "blur"]) button.addEventListener(event, () => hover(-1));
  return button;
}

// The words that fit what is typed: the word itself, then those that begin so, then those that hold it.
function fits(typed) {
  const low = typed.toLowerCase(), ranked = [[], [], [], []];
  folded.forEach((word, i) => {
    const found = word.indexOf(low);
    if (found < 0) return;
    ranked[words[i] === typed ? 0 : word === low ? 1 : found === 0 ? 2 : 3].push(i);
  });
  return ranked.flat().slice(0, SUGGESTIONS);
}

function suggest() {
  const typed = search.value.trim();
  offered = typed ? fits(typed) : [];
  active = offered.length ? 0 : -1;
  nothing.textContent = typed && active < 0 ? `None of the ${words.length.toLocaleString("en")} words shown fits.` : "";
  list.replaceChildren(...offered.map((i, place) => {
    const item = element("li", "", words[i]);
    item.id = `suggestion-${place}`;
    item.setAttribute("role", "option");
    item.addEventListener("pointerdown", event => event.preventDefault()); // the box keeps the focus
    item.addEventListener("click", () => take(place));
    return item;
  }));
  mark();
}

function mark() {
  list.hidden = !offered.length;
  search.setAttribute("aria-expanded", String(!list.hidden));
  [...list.children].forEach((item, place) => item.setAttribute("aria-selected", String(place === active)));
  if (active < 0) search.removeAttribute("aria-activedescendant");
  else search.setAttribute("aria-activedescendant", `suggestion-${active}`);
}

function take(place) {
  const i = offered[place];
  clear();
  if (i !== undefined) choose(i, true);
}

function clear() {
  search.value = "";
  suggest();
}

search.addEventListener("input", suggest);
search.addEventListener("focus", suggest);
search.addEventListener("blur", () => {
  offered = [];
  active = -1;
  mark();
});
search.addEventListener("keydown", event => {
  const count = offered.length;
  if (event.isComposing) return;
  if (event.key === "Enter" && count) take(active);
  else if (event.key === "ArrowDown" && count) active = (active + 1) % count;
  else if (event.key === "ArrowUp" && count) active = (active + count - 1) % count;
  else return;
  event.preventDefault();
  mark();
});

document.addEventListener("keydown", event => {
  if (event.key === "Escape") {
    if (search.value) clear();
    else if (chosen >= 0) choose(-1, false);
  } else if (event.key === "/" && document.activeElement !== search && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    search.focus();
  }
});

function addressed() {
  const fragment = location.hash.slice(1);
  try {
    return decodeURIComponent(fragment);
  } catch {
    return fragment; // written by hand, with a lone %
  }
}

function follow() {
  const word = addressed();
  if (word === (chosen < 0 ? "" : words[chosen])) return;
  choose(numbers.get(word) ?? numbers.get(word.toLowerCase()) ?? -1, true);
}

const total = words.length.toLocaleString("en");
document.getElementById("count").textContent = `${total} words on a plane`;
document.getElementById("about").textContent =
  `${total} words, ${data.dim.toLocaleString("en")} dimensions, model: ${data.model}.`;
canvas.setAttribute("aria-label",
  `Map of ${total} words; words of like use stand together. Find a word by the search box to hear its neighbours.`);
window.plane = Object.freeze({ place: word => (numbers.has(word) ? place(numbers.get(word)) : null) });

readColours();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);
resize();
new ResizeObserver(resize).observe(canvas);
panel.replaceChildren(...welcome());
follow();
addEventListener("hashchange", follow);
