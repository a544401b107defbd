"use strict";

const DEBOUNCE = 400; // milliseconds without a key before a text is sent
const BUSY = [429, 503]; // the server asks to come again
const RETRY = 2; // seconds, where it does not say when
const COPIED = 2000; // milliseconds

const state = {
  languages: [],
  settings: null,
  text: "", // the translation, with the best hypothesis of each sentence
  sentences: [], // of it, each with the index of the hypothesis that is chosen
  current: 0, // the sentence whose alternatives are listed
  over: null, // the word under the mouse: {side, sentence, word}
  kept: null, // the word with the focus or the cursor
  busy: { until: 0, reason: "" },
};
let running = new AbortController(); // of the newest request

const find = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Requests

class ServerError extends Error {} // with a message for the reader of the page

function sleep(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// Waits as long as the server has asked for, also before another request
async function waitForServer(signal) {
  for (;;) {
    const left = state.busy.until - Date.now();
    find("countdown").textContent = left > 0 ? `Trying again in ${Math.ceil(left / 1000)} s.` : "";
    if (left <= 0) return;
    report(state.busy.reason);
    await sleep(left % 1000 || 1000, signal);
  }
}

// The answer to a GET, or to a POST if there is something to send
async function ask(path, signal, sent) {
  const options = sent && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(sent),
  };
  for (;;) {
    await waitForServer(signal);
    report(sent ? "Translating …" : "Asking for the languages …");
    const response = await fetch(path, { ...options, signal }).catch((error) => {
      throw new ServerError(`The server cannot be reached (${error.message}).`);
    });
    const answer = await response.json().catch(() => null);
    const reason = answer?.error ?? `The server answered with status ${response.status}.`;
    if (BUSY.includes(response.status)) {
      const seconds = Number(response.headers.get("Retry-After")) || RETRY;
      state.busy = { until: Date.now() + 1000 * seconds, reason };
    } else if (response.ok && answer) {
      return answer;
    } else {
      throw new ServerError(reason);
    }
  }
}

// Does what needs the server; what it was doing before is given up
async function run(action) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  report("");
  complain("");
  try {
    await action(signal);
    report("");
  } catch (error) {
    if (signal.aborted) return; // something newer is running
    report("");
    if (!(error instanceof ServerError)) throw error;
    complain(error.message);
  }
}

function report(status) {
  if (find("status").textContent !== status) find("status").textContent = status;
  if (!status) find("countdown").textContent = "";
}

function complain(message, hasCure = true) {
  find("message").textContent = message;
  find("problem").hidden = !message;
  find("again").hidden = !hasCure;
}

// Translating

function translate(delay = DEBOUNCE) {
  const text = find("source").value;
  find("target").classList.add("stale");
  if (!text.trim()) show({ text: "", sentences: [] });
  run(async (signal) => {
    const objection = objectionTo(text);
    if (objection || !text.trim()) return complain(objection, false);
    await sleep(delay, signal);
    const beamSize = Number(find("beam_size").value);
    const answer = await ask("v1/translate", signal, {
      ...requested(),
      text,
      beam_size: beamSize,
      length_penalty: Number(find("length_penalty").value),
      n_best: Math.min(beamSize, state.settings.search.n_best.max),
      details: true,
      glossary: find("glossary").value || undefined,
    });
    show(answer.translations[0]);
  });
}

// The fields that every request has
function requested() {
  const fields = { source: find("from").value, target: find("to").value };
  if (find("adapter").value) fields.adapter = find("adapter").value;
  if (state.settings.keyRequired) fields.api_key = find("api_key").value;
  return fields;
}

function objectionTo(text) {
  const { charLimit, keyRequired } = state.settings;
  const length = [...text].length;
  if (length > charLimit) {
    return `The server takes ${count(charLimit)} characters at most. Received: ${count(length)}.`;
  }
  if (keyRequired && !find("api_key").value) return "The server requires an API key.";
  const wrong = find("settings").querySelector("input:invalid");
  return wrong ? `${wrong.parentNode.textContent.trim()}: ${wrong.validationMessage}` : "";
}

function count(number) {
  return number.toLocaleString("en");
}

function show({ text, sentences }) {
  state.text = text;
  state.sentences = sentences.map((sentence) => ({ ...sentence, chosen: 0 }));
  state.current = 0;
  find("target").classList.remove("stale");
  find("notes").replaceChildren(
    ...sentences.flatMap(({ notes }) => notes.map((note) => make("p", { class: "warning" }, note))),
  );
  paintSource();
  paintResult();
  paintAlternatives();
}

function chosen(sentence) {
  return sentence.hypotheses[sentence.chosen];
}

function translation() {
  if (state.sentences.every((sentence) => !sentence.chosen)) return state.text;
  return state.sentences.map((sentence) => sentence.before + chosen(sentence).text).join("");
}

// Words

// Appends a text from a position on until its last word, the words as elements;
// returns where it ends. Words that the text spells otherwise are left out.
function appendWords(parent, text, words, attributes, position = 0) {
  words.forEach((word, index) => {
    const start = text.indexOf(word, position);
    if (start < 0) return;
    const end = start + word.length;
    const element = make("span", { class: "word", ...attributes, "data-word": index, "data-end": end }, word);
    parent.append(text.slice(position, start), element);
    position = end;
  });
  return position;
}

// Behind the text field, which cannot mark words, lies the same text
function paintSource(sentences = state.sentences) {
  const text = find("source").value;
  const mirror = find("mirror");
  mirror.replaceChildren();
  let position = 0;
  sentences.forEach(({ source_words: words }, i) => {
    position = appendWords(mirror, text, words, { "data-sentence": i }, position);
  });
  mirror.append(text.slice(position), "\n"); // so that an empty last line has a height
  find("counter").textContent = `${count([...text].length)} / ${count(state.settings.charLimit)}`;
  find("clear").disabled = !text;
}

function paintResult() {
  const result = find("result");
  state.over = state.kept = null; // words that are gone
  result.replaceChildren();
  state.sentences.forEach((sentence, i) => {
    const { text, words } = chosen(sentence);
    const part = make("span", { class: "sentence" });
    const attributes = { "data-sentence": i, tabindex: -1 };
    const end = appendWords(part, text, words.map((word) => word.text), attributes);
    part.append(text.slice(end));
    for (const element of part.children) {
      const { probability } = words[element.dataset.word];
      element.style.setProperty("--doubt", `${100 * (1 - probability)}%`);
    }
    result.append(sentence.before, part);
  });
  result.querySelector(".word")?.setAttribute("tabindex", 0);
  const text = translation();
  find("announcement").textContent = text;
  find("copy").disabled = !text;
  find("reading").hidden = find("choices").hidden = !text;
  find("attention").hidden = true; // it was of another translation
  update();
}

function paintAlternatives() {
  const box = find("alternatives");
  box.querySelectorAll("label").forEach((label) => label.remove());
  const number = state.sentences.length;
  if (!number) return;
  find("heading").textContent = number > 1 ? `Alternatives for sentence ${state.current + 1} of ${number}` : "Alternatives";
  const { lang, dir } = find("result");
  const sentence = state.sentences[state.current];
  sentence.hypotheses.forEach(({ text, score }, i) => {
    const input = make("input", { type: "radio", name: "alternative", value: i });
    input.checked = i === sentence.chosen;
    const spelled = score.toFixed(2).replace("-", "\u2212");
    const shown = make("bdi", { lang, dir }, ...emphasized(text, sentence.hypotheses[0].text));
    box.append(make("label", {}, input, shown, make("span", { class: "score" }, spelled)));
  });
  update();
}

// A text, with emphasis on what is between the words that it shares with the
// beginning and with the end of another one
function emphasized(text, other) {
  const [words, others] = [text, other].map((string) => string.split(" "));
  const most = Math.min(words.length, others.length);
  let first = 0;
  while (first < most && words[first] === others[first]) first++;
  let last = 0;
  while (last < most - first && words.at(-1 - last) === others.at(-1 - last)) last++;
  const end = words.length - last;
  const parts = [words.slice(0, first), words.slice(first, end), words.slice(end)];
  const [before, middle, after] = parts.map((part) => part.join(" "));
  return middle ? [before && `${before} `, make("b", {}, middle), after && ` ${after}`] : [text];
}

function wordAt(side, sentence, word) {
  return find(side).querySelector(`[data-sentence="${sentence}"][data-word="${word}"]`);
}

function placeOf(element) {
  const word = element?.closest(".word");
  if (!word) return null;
  const { sentence, word: index } = word.dataset;
  return { side: word.closest("#mirror, #result").id, sentence: Number(sentence), word: Number(index) };
}

// Marks the word under the mouse, or else the one with the focus, and its links
function update() {
  document.querySelectorAll(".active, .aligned").forEach((word) => word.classList.remove("active", "aligned"));
  find("result").querySelectorAll(".sentence").forEach((part, i, parts) => {
    part.classList.toggle("current", parts.length > 1 && i === state.current);
  });
  const place = state.over ?? state.kept;
  if (!place) {
    find("details").textContent = "Point at a word to see its alignment.";
    return;
  }
  const { alignment, words } = chosen(state.sentences[place.sentence]);
  const own = place.side === "mirror" ? 0 : 1;
  const other = place.side === "mirror" ? "result" : "mirror";
  const links = alignment.filter((link) => link[own] === place.word);
  const partners = links.map((link) => wordAt(other, place.sentence, link[1 - own])).filter(Boolean);
  const word = wordAt(place.side, place.sentence, place.word);
  word.classList.add("active");
  partners.forEach((partner) => partner.classList.add("aligned"));
  const sure = own ? ` (${Math.round(100 * words[place.word].probability)} %)` : "";
  const spelled = partners.map((partner) => `“${partner.textContent}”`).join(", ") || "no word";
  find("details").textContent = `“${word.textContent}”${sure} is aligned with ${spelled}`;
}

// The word of the source at the cursor
function followCursor() {
  const field = find("source");
  if (document.activeElement !== field) return;
  const words = [...find("mirror").children];
  const word = words.find(({ dataset }) => Number(dataset.end) >= field.selectionStart);
  state.kept = placeOf(word);
  update();
}

function walk(event) {
  const words = [...find("result").querySelectorAll(".word")];
  const from = words.indexOf(event.target);
  const forward = find("result").dir === "rtl" ? "ArrowLeft" : "ArrowRight";
  const steps = {
    ArrowLeft: forward === "ArrowLeft" ? 1 : -1,
    ArrowRight: forward === "ArrowRight" ? 1 : -1,
    Home: -words.length,
    End: words.length,
  };
  if (from < 0 || !(event.key in steps)) return;
  event.preventDefault();
  words[from].tabIndex = -1;
  const to = words[Math.max(0, Math.min(words.length - 1, from + steps[event.key]))];
  to.tabIndex = 0;
  to.focus();
}

// Languages

function languageOf(code) {
  return state.languages.find((language) => language.code === code);
}

function fill(select, languages) {
  const before = select.value;
  select.replaceChildren(...languages.map(({ code, name }) => make("option", { value: code }, name)));
  if (languages.some(({ code }) => code === before)) select.value = before;
}

function showLanguages() {
  const source = languageOf(find("from").value);
  fill(find("to"), source.targets.map(languageOf));
  const target = languageOf(find("to").value);
  find("swap").disabled = !target.targets.includes(source.code);
  for (const [id, { code, direction }] of Object.entries({ source, mirror: source, result: target })) {
    Object.assign(find(id), { lang: code, dir: direction });
  }
}

function swap() {
  const [from, to] = [find("from").value, find("to").value];
  if (state.sentences.length) find("source").value = translation();
  find("from").value = to;
  showLanguages();
  find("to").value = from;
  showLanguages();
  change(0);
}

function showSettings() {
  const { search, keyRequired, glossaries, adapters } = state.settings;
  const none = { code: "", name: "none" };
  for (const [id, names] of Object.entries({ glossary: glossaries, adapter: adapters })) {
    fill(find(id), [none, ...names.map((name) => ({ code: name, name }))]);
    find(id).parentNode.hidden = !names.length;
  }
  for (const [name, { default: value, min, max }] of Object.entries(search)) {
    const input = find(name);
    if (input) Object.assign(input, { value, max, ...(min !== undefined && { min }) });
  }
  find("key").hidden = !keyRequired;
}

// Commands

// The text, the languages or the settings are others
function change(delay) {
  paintSource([]);
  state.over = state.kept = null;
  update();
  translate(delay);
}

async function copy() {
  let words = "Copied";
  try {
    await navigator.clipboard.writeText(translation());
  } catch {
    // Browsers forbid it to pages that did not come by HTTPS.
    getSelection().selectAllChildren(find("result"));
    words = "Selected: copy it with Ctrl+C";
  }
  find("copy").textContent = words;
  setTimeout(() => (find("copy").textContent = "Copy"), COPIED);
}

function fillQuestion({ target: form, submitter }) {
  const sentence = state.sentences[state.current];
  const fields = { adapter: "", ...requested(), text: sentence.source, translation: chosen(sentence).text };
  for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
  // The frame stays as it is when another tab gets the answer.
  find("attention").hidden &&= submitter.formTarget === "_blank";
}

function listen() {
  const source = find("source");
  const result = find("result");
  source.addEventListener("input", () => change());
  source.addEventListener("pointermove", ({ clientX, clientY }) => {
    // The words lie behind the text field.
    const below = document.elementsFromPoint(clientX, clientY);
    state.over = placeOf(below.find((element) => element.matches("#mirror .word")));
    update();
  });
  result.addEventListener("pointerover", ({ target }) => {
    state.over = placeOf(target);
    update();
  });
  for (const field of [source, result]) {
    field.addEventListener("pointerleave", () => {
      state.over = null;
      update();
    });
    field.addEventListener("focusout", () => {
      state.kept = null;
      update();
    });
  }
  result.addEventListener("focusin", ({ target }) => {
    state.kept = placeOf(target);
    state.current = state.kept.sentence;
    paintAlternatives();
  });
  result.addEventListener("keydown", walk);
  document.addEventListener("selectionchange", followCursor);
  find("alternatives").addEventListener("change", ({ target }) => {
    state.sentences[state.current].chosen = Number(target.value);
    paintResult();
  });
  for (const id of ["from", "to"]) {
    find(id).addEventListener("change", () => {
      showLanguages();
      change(0);
    });
  }
  for (const id of ["settings", "key"]) find(id).addEventListener("input", () => change());
  find("ask").addEventListener("submit", fillQuestion);
  find("swap").addEventListener("click", swap);
  find("copy").addEventListener("click", copy);
  find("again").addEventListener("click", () => (state.settings ? change(0) : start()));
  find("clear").addEventListener("click", () => {
    source.value = "";
    source.focus();
    change();
  });
}

function start() {
  run(async (signal) => {
    state.languages = await ask("languages", signal);
    state.settings = await ask("frontend/settings", signal);
    fill(find("from"), state.languages.filter(({ targets }) => targets.length));
    showSettings();
    showLanguages();
    listen();
    change(0); // what was typed meanwhile
  });
}

start();
