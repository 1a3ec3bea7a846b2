// What is typed goes to the API of this service, and its answers are shown; nobody else is asked.

const MOST_LABELS = 10, MOST_NEIGHBOURS = 10;
const at = name => document.getElementById(name);

function made(kind, text, className) {
  const element = document.createElement(kind);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

async function ask(path, question) {
  const options = question && { method: "POST", body: JSON.stringify(question), headers: { "Content-Type": "application/json" } };
  const reply = await fetch(path, options);
  const answer = await reply.json();
  if (!reply.ok) throw new Error(answer.error);
  return answer;
}

// Run a question to its end; what goes wrong is said at the top, and aloud by screen readers.
async function during(form, work) {
  const button = form.querySelector("button");
  button.disabled = true;
  at("trouble").textContent = "";
  try {
    await work();
  } catch (error) {
    at("trouble").textContent = error instanceof TypeError ? "The service does not answer." : error.message;
  } finally {
    button.disabled = false;
  }
}

const percent = share => `${(100 * share).toFixed(1)} %`;
const minus = text => text.replace("-", "−");
const signed = value => Math.abs(value) < 0.0005 ? "0" : (value > 0 ? "+" : "") + minus(value.toFixed(3));

function bar(share) {
  const element = made("span", undefined, "bar");
  element.style.setProperty("--share", `${100 * Math.max(0, share)}%`);
  return element;
}

function showScores({ labels, scores }) {
  at("verdict").textContent = `${labels[0]}, ${percent(scores[0])}`;
  at("scores").replaceChildren(...labels.map((label, i) => {
    const row = made("li");
    row.append(made("span", label), made("span", percent(scores[i]), "number"), bar(scores[i]));
    return row;
  }));
  at("answer").hidden = false;
}

// The more a word adds, the stronger its colour; the line below it tells the sign without colour.
function showWords({ label, words, unknown }) {
  at("why-title").textContent = `What each word adds to “${label}”`;
  const most = Math.max(...words.map(({ part }) => Math.abs(part)), 1e-9);
  at("words").replaceChildren(...words.flatMap(({ word, part }) => {
    const weight = Math.abs(part) / most;
    const element = made("span", word, weight < 0.02 ? "" : part > 0 ? "for" : "against");
    element.style.setProperty("--weight", weight.toFixed(3));
    element.title = signed(part);
    return [element, " "];
  }));
  at("numbers").replaceChildren(...words.map(({ word, part }) => {
    const row = made("tr");
    row.append(made("td", word), made("td", signed(part)));
    return row;
  }));
  at("unknown").textContent = unknown.length ? `Not seen in training: ${unknown.join(" ")}` : "";
  at("why").hidden = !words.length;
}

function classify(facts) {
  at("classify").hidden = false;
  const form = at("ask");
  form.addEventListener("submit", event => {
    event.preventDefault();
    during(form, async () => {
      const text = at("text").value;
      const top = Math.min(facts.labels.length, MOST_LABELS);
      const [predicted, explained] = await Promise.all([
        ask("predict", { texts: [text], top }),
        facts.can.includes("explain") ? ask("explain", { text }) : null,
      ]);
      showScores(predicted.predictions[0]);
      if (explained) showWords(explained);
    });
  });
  at("text").addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
}

function embed() {
  at("embed").hidden = false;
  const form = at("look");
  const find = word => during(form, async () => {
    const { neighbours } = await ask("nearest", { words: [word], top: MOST_NEIGHBOURS });
    at("asked").textContent = word;
    at("near").replaceChildren(...neighbours[0].nearest.map(({ word: other, cosine }) => {
      const row = made("li"), button = made("button", other);
      button.type = "button";
      button.addEventListener("click", () => {
        at("word").value = other;
        at("word").focus();
        find(other);
      });
      row.append(button, made("span", minus(cosine.toFixed(3)), "number"), bar(cosine));
      return row;
    }));
    at("found").hidden = false;
  });
  form.addEventListener("submit", event => {
    event.preventDefault();
    find(at("word").value.trim());
  });
  at("map").addEventListener("toggle", () => {
    if (!at("map").open || at("frame").firstChild) return;
    const frame = made("iframe");
    frame.title = "Word map";
    frame.src = "map";
    at("frame").append(frame);
  });
}

async function begin() {
  const facts = await ask("model");
  document.title = `${facts.name} · manyhands`;
  at("name").textContent = facts.name;
  const holds = [facts.model];
  if (facts.labels.length) holds.push(`${facts.labels.length.toLocaleString("en")} labels`);
  if (facts.words) holds.push(`${facts.words.toLocaleString("en")} words of ${facts.dim} numbers`);
  at("facts").textContent = holds.join(", ");
  if (facts.can.includes("classify")) classify(facts);
  if (facts.can.includes("embed")) embed();
}

begin().catch(error => { at("trouble").textContent = error.message; });
