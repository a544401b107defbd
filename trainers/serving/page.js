"use strict";

const DEBOUNCE = 400; // milliseconds without a key before a text is sent
const BUSY = [429, 503]; // the server asks to come again
const RETRY = 2; // seconds, where it does not say when
const COPIED = 2000; // milliseconds
const PART = 400; // characters, after which a long text may be divided
const AUTO = "auto"; // the language is detected
// Where a line or a sentence ends for sure: not after abbreviations
const SURE_END = /(?=\n)|(?<=\p{Ll}{5}[.!?]["”’»)]?)(?=\s+["“„‘«(]?\p{Lu})|(?<=[。！？])/u;
const UNWRAPPED = /[^\n]{120}/; // a line that nobody has wrapped by hand
const CLOSE = 0.1; // an alternative's score is below the best one's by less
const DOUBTFUL = 0.3; // a word that is less probable is marked
const TOUCH = matchMedia("(hover: none)");
// Errors of files, for which the page has plainer words
const NOT_UTF8 = /^line \d+ is not UTF-8/i;
const DAMAGED = /^expected an intact/i;

const state = {
  languages: [],
  settings: null,
  text: "", // the translation, with the best hypothesis of each sentence
  isWhole: false, // whether it is of the whole text
  answers: new Map(), // of the parts of the text, by request
  unknown: [], // what the link asks for and the server does not have
  detected: "", // the language of the text, if it was asked for
  action: null, // the newest one that needs the server
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

// With a message for the reader of the page
class ServerError extends Error {
  constructor(message, hasCure) {
    super(message);
    this.hasCure = hasCure; // whether a second try may succeed
  }
}

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

// The answer to a GET, or to a POST of a form or a text of JSON
async function ask(path, signal, status, body) {
  const headers = typeof body === "string" ? { "Content-Type": "application/json" } : {};
  const options = body && { method: "POST", headers, body };
  for (;;) {
    await waitForServer(signal);
    report(status, true);
    const response = await fetch(path, { ...options, signal }).catch((error) => {
      throw new ServerError(`The server cannot be reached (${error.message}).`, true);
    });
    const answer = await response.json().catch(() => null);
    const reason = asSentence(answer?.error ?? `the server answered with status ${response.status}`);
    if (BUSY.includes(response.status)) {
      const seconds = Number(response.headers.get("Retry-After")) || RETRY;
      state.busy = { until: Date.now() + 1000 * seconds, reason };
    } else if (response.ok && answer) {
      return answer;
    } else {
      throw new ServerError(reason, response.ok || response.status >= 500);
    }
  }
}

// Does what needs the server; what it was doing before is given up
async function run(action) {
  state.action = action;
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
    complain(error.message, error.hasCure);
  }
}

function asSentence(error) {
  return error[0].toUpperCase() + error.slice(1) + (/[.!?]$/.test(error) ? "" : ".");
}

function report(status, isBusy = false) {
  find("status").classList.toggle("busy", isBusy);
  if (find("status").textContent !== status) find("status").textContent = status;
  if (!status) find("countdown").textContent = "";
}

function complain(message, hasCure = false) {
  find("message").textContent = message;
  find("problem").hidden = !message;
  find("again").hidden = !hasCure;
}

// Translating

function translate(delay = DEBOUNCE) {
  const text = find("source").value;
  find("target").classList.add("stale");
  find("copy").disabled = find("finished").hidden = true;
  if (!text.trim()) clear();
  run(async (signal) => {
    const objection = objectionTo(text);
    complain(objection);
    if (text.trim()) await sleep(delay, signal);
    remember();
    if (objection || !text.trim()) return;
    const parts = divided(text);
    const answers = new Map();
    let done = 0;
    for (const part of parts) {
      const body = JSON.stringify(question(part));
      const percent = done ? ` ${Math.round((100 * done) / text.length)} %` : "";
      if (!state.answers.has(body)) {
        state.answers.set(body, await ask("v1/translate", signal, `Translating …${percent}`, body));
      }
      answers.set(body, state.answers.get(body));
      if (!done) clear();
      done += part.length;
      add(answers.get(body).translations[0], part, done === text.length);
    }
    state.answers = answers;
  });
}

// Parts of a text that have whole sentences, each long enough for a request
function divided(text) {
  const parts = [];
  let part = "";
  for (const block of text.split(/(?=\n[^\S\n]*\n)/)) {
    // The lines of a paragraph that was wrapped by hand belong together.
    const isOne = block.trim().includes("\n") && !UNWRAPPED.test(block);
    for (const piece of isOne ? [block] : block.split(SURE_END)) {
      const text = part.trimEnd(); // what follows it is before the next one
      if (text.length >= PART && piece.trim()) {
        parts.push(text);
        part = part.slice(text.length);
      }
      part += piece;
    }
  }
  return [...parts, part];
}

// The request for a part of the text
function question(text) {
  const beamSize = Number(find("beam_size").value);
  return {
    ...requested(),
    text,
    beam_size: beamSize,
    length_penalty: Number(find("length_penalty").value),
    n_best: Math.min(beamSize, state.settings.search.n_best.max),
    details: true,
    glossary: find("glossary").value || ownTerms() || undefined,
  };
}

// The terms that were typed, or null if there are none
function ownTerms() {
  const lines = find("terms").value.split("\n").filter((line) => line.trim());
  const terms = lines.map((line) => line.split("=").map((side) => side.trim()));
  return lines.length ? Object.fromEntries(terms) : null;
}

// The columns of a table to translate, and those of their translations; null if the user gives none.
function columnsOf(file) {
  if (!/\.(csv|tsv|tab|ods|ots|xlsx|xlsm|xltx|xltm)$/i.test(file.name)) return {};
  const columns = prompt("Names of the columns to translate, separated by commas:", "");
  const into = columns && prompt("Into these columns, which may be new:", "");
  return into ? { columns, into } : null;
}

function translateFile(file) {
  const columns = columnsOf(file);
  if (!columns) return;
  clear();
  find("target").classList.remove("stale");
  run(async (signal) => {
    const objection = objectionToFile(file.name) || objectionTo("");
    if (objection) return complain(objection);
    const terms = find("glossary").value || (ownTerms() && JSON.stringify(ownTerms()));
    const form = new FormData();
    for (const [name, value] of Object.entries({ ...requested(), ...columns, ...(terms && { glossary: terms }) })) {
      form.append(name, value);
    }
    form.append("file", file);
    const answer = await ask("translate_file", signal, `Translating ${file.name} …`, form).catch((error) => {
      if (DAMAGED.test(error.message)) error.message = `${file.name} is damaged.`;
      if (NOT_UTF8.test(error.message)) error.message = `${file.name} is not in UTF-8: save it as UTF-8.`;
      throw error;
    });
    const { translatedFileUrl: address, notes = [] } = answer;
    // A proxy may have given the server another address.
    const key = address.slice(address.lastIndexOf("/") + 1);
    const name = decodeURIComponent(key.slice(key.indexOf(".") + 1));
    const link = Object.assign(find("download"), { href: `download_file/${key}`, download: name });
    link.textContent = `Download ${name}`;
    find("finished").hidden = false;
    note(notes);
    link.click();
  });
}

// The fields that every request has
function requested() {
  const fields = { source: find("from").value, target: find("to").value };
  if (find("adapter").value) fields.adapter = find("adapter").value;
  if (state.settings.keyRequired) fields.api_key = find("api_key").value;
  return fields;
}

function objectionToFile(name) {
  const [suffix] = /\.[^.]*$/.exec(name) ?? [""];
  if (state.settings.supportedFilesFormat.includes(suffix.toLowerCase())) return "";
  const kind = suffix.slice(1).toUpperCase() || name;
  return `${kind} cannot be translated; Word (.docx), OpenDocument, text, HTML, subtitles can.`;
}

function objectionTo(text) {
  const { charLimit, keyRequired } = state.settings;
  const length = [...text].length;
  if (length > charLimit) {
    return `The server takes ${count(charLimit)} characters at most. Received: ${count(length)}.`;
  }
  if (keyRequired && !find("api_key").value) return "The server requires an API key.";
  const unclear = find("terms").value.split("\n").find((line) => line.trim() && !/^[^=]*\S[^=]*=[^=]*\S[^=]*$/.test(line));
  if (unclear) return `Your terms: expected a line such as “dog = Hund”. Received: “${unclear.trim()}”.`;
  if (ownTerms() && find("glossary").value) return "Choose a glossary or type terms, not both.";
  const wrong = find("settings").querySelector("input:invalid");
  return wrong ? `${wrong.parentNode.textContent.trim()}: ${wrong.validationMessage}` : "";
}

function count(number) {
  return number.toLocaleString("en");
}

// Shows no translation
function clear() {
  Object.assign(state, { text: "", isWhole: false, sentences: [], current: 0, detected: "" });
  find("target").classList.remove("stale");
  find("finished").hidden = true;
  note([]);
  showDetected();
  paintSource();
  paintResult();
  paintAlternatives();
}

// Adds the translation of the next part of the text to what is shown
function add({ source, text, sentences }, part, isWhole) {
  const number = state.sentences.length;
  for (const { hypotheses: [{ words, confidence }] } of sentences) {
    confidence?.words.forEach((probability, i) => Object.assign(words[i] ?? {}, { probability }));
  }
  // A part that is in the target language already has no sentences.
  const all = sentences.length || !text.trim() ? sentences : [unchanged(text)];
  state.sentences.push(...all.map((sentence) => ({ ...sentence, lang: source, chosen: 0 })));
  state.text += text;
  state.isWhole = isWhole;
  if (find("from").value === AUTO) state.detected ||= source;
  showDetected();
  paintSource();
  paintResult(number);
  if (number) paintHeading();
  else paintAlternatives();
}

function unchanged(text) {
  const { name } = languageOf(find("to").value);
  return {
    before: "",
    source: text,
    source_words: [],
    notes: [`This is in ${name} already.`],
    hypotheses: [{ text, score: 0, words: [], alignment: [] }],
  };
}

function note(notes) {
  const shown = [...state.unknown, ...notes];
  find("notes").replaceChildren(...shown.map((one) => make("p", { class: "warning" }, one)));
}

// A note on a sentence in plain words, or "" if it does not hold
function inWords(one, text) {
  const [, , forms] = /^lacks the term (['"])(.*)\1 in/s.exec(one) ?? [];
  if (!forms) return /^[a-z]/.test(one) ? `This sentence ${one.replace(/^(may be broken by its terms):.*/s, "$1")}.` : one;
  const all = forms.split(" or ");
  if (all.some((form) => text.includes(form))) return ""; // the chosen alternative has it
  const own = Object.entries(ownTerms() ?? {}).find(([, value]) => value === all.join("|"));
  return `The translation does not use your term “${forms}”${own ? ` (${own[0]})` : ""}.`;
}

// Why the translation of a sentence is to be checked, or ""
function doubtOf(sentence) {
  const { confidence } = chosen(sentence);
  if (!confidence?.reasons.length) return "";
  const percent = Math.round(100 * confidence.probability);
  return `Check sentence ${state.sentences.indexOf(sentence) + 1} (${percent} % probable): ${confidence.reasons.join("; ")}.`;
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

// Paints the translation from a sentence on
function paintResult(first = 0) {
  const result = find("result");
  if (!first) {
    state.over = state.kept = null; // words that are gone
    result.replaceChildren();
  }
  state.sentences.forEach((sentence, i) => {
    if (i < first) return;
    const { text, words } = chosen(sentence);
    const part = make("span", { class: "sentence" });
    const notes = sentence.notes.map((one) => inWords(one, text)).filter(Boolean);
    if (notes.length) part.dataset.note = notes.join(" ");
    const doubt = doubtOf(sentence);
    if (doubt) Object.assign(part, { className: "sentence unsure", title: doubt, role: "group" });
    const attributes = { "data-sentence": i, tabindex: -1 };
    const end = appendWords(part, text, words.map((word) => word.text), attributes);
    part.append(text.slice(end));
    for (const element of part.children) {
      const { probability } = words[element.dataset.word];
      element.classList.toggle("doubtful", probability < DOUBTFUL);
    }
    result.append(sentence.before, part);
  });
  result.querySelector(".word")?.setAttribute("tabindex", 0);
  const text = translation();
  const notes = [...result.querySelectorAll("[data-note]")].map((part) => part.dataset.note);
  const doubts = state.sentences.map(doubtOf).filter(Boolean);
  find("announcement").textContent = state.isWhole ? [text, ...notes, ...doubts].join("\n") : "";
  find("copy").disabled = !text || !state.isWhole || find("target").matches(".stale");
  const isTranslated = state.sentences.some(({ source_words: words }) => words.length);
  find("reading").hidden = find("choices").hidden = !isTranslated;
  find("attention").hidden = find("drawing").hidden = true; // it was of another translation
  update();
}

function paintHeading() {
  const number = state.sentences.length;
  find("heading").textContent = number > 1 ? `Alternatives for sentence ${state.current + 1} of ${number}` : "Alternatives";
}

function paintAlternatives() {
  const box = find("alternatives");
  box.querySelectorAll("label").forEach((label) => label.remove());
  if (!state.sentences.length) return;
  paintHeading();
  const { lang, dir } = find("result");
  const sentence = state.sentences[state.current];
  sentence.hypotheses.forEach(({ text, score }, i) => {
    const input = make("input", { type: "radio", name: "alternative", value: i });
    input.checked = i === sentence.chosen;
    const isClose = sentence.hypotheses[0].score - score <= CLOSE;
    const rank = i ? (isClose ? "nearly as good" : "") : "first choice";
    const shown = make("bdi", { lang, dir }, ...emphasized(text, sentence.hypotheses[0].text));
    box.append(make("label", {}, input, shown, make("span", { class: "rank" }, rank)));
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
    find("details").textContent = `${TOUCH.matches ? "Tap" : "Point at"} a word to see what it translates.`;
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
  reveal(partners[0]);
  const spelled = partners.map((partner) => `“${partner.textContent}”`).join(", ") || "no single word";
  const sure = own && `The model is ${Math.round(100 * words[place.word].probability)} % sure of it.`;
  find("details").textContent = own
    ? `“${word.textContent}” translates ${spelled}. ${sure} ${doubtOf(state.sentences[place.sentence])}`.trim()
    : `“${word.textContent}” is translated by ${spelled}.`;
}

// Scrolls the pane of a word, and nothing else, until the word is seen
function reveal(word) {
  if (!word) return;
  const pane = word.closest(".scroll");
  const [inner, outer] = [word, pane].map((element) => element.getBoundingClientRect());
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    pane.scrollTop += inner.top - outer.top - outer.height / 3;
  }
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

// The language of the text, or none while it is not known
function sourceLanguage() {
  const code = find("from").value;
  return languageOf(code === AUTO ? state.detected : code);
}

function showLanguages() {
  const code = find("from").value;
  const targets = code === AUTO ? state.languages.flatMap((language) => language.targets) : languageOf(code).targets;
  fill(find("to"), [...new Set(targets)].map(languageOf));
  showDetected();
}

function showDetected() {
  const source = sourceLanguage();
  const target = languageOf(find("to").value);
  const auto = find("from").querySelector(`[value="${AUTO}"]`);
  auto.textContent = state.detected ? `Detect language (${languageOf(state.detected)?.name ?? state.detected})` : "Detect language";
  find("swap").disabled = !source || !target.targets.includes(source.code);
  const { code: lang, direction: dir } = source ?? { code: "", direction: "auto" };
  for (const id of ["source", "mirror"]) Object.assign(find(id), { lang, dir });
  Object.assign(find("result"), { lang: target.code, dir: target.direction });
}

function swap() {
  const [from, to] = [sourceLanguage().code, find("to").value];
  if (state.isWhole) find("source").value = translation();
  find("from").value = to;
  showLanguages();
  find("to").value = from;
  change(0);
}

// The address, so that a link or a reload shows the same

function remember() {
  const fields = { from: find("from").value, to: find("to").value, text: find("source").value };
  history.replaceState(null, "", `#${new URLSearchParams(fields)}`);
}

function recall() {
  const fields = new URLSearchParams(location.hash.slice(1));
  state.unknown = [];
  for (const id of ["from", "to"]) {
    const options = [...find(id).options].map(({ value }) => value);
    const code = fields.get(id);
    if (options.includes(code)) find(id).value = code;
    else if (code) state.unknown.push(`This server does not translate ${id} “${code}”, as the link asks.`);
    showLanguages();
  }
  if (fields.has("text")) find("source").value = fields.get("text");
}

function showSettings() {
  const { search, keyRequired, glossaries, adapters, models, supportedFilesFormat: suffixes } = state.settings;
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
  find("own").hidden = !state.settings.maxTerms;
  find("ask").hidden = !state.settings.attention;
  find("choose").hidden = !suffixes.length;
  find("file").accept = suffixes.join();
  find("card").textContent = models.join(", ");
  find("model").hidden = !models.length;
}

// Commands

// The text, the languages or the settings are others
function change(delay) {
  state.detected = "";
  showDetected();
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
    words = "Selected: now copy it";
  }
  find("copy").textContent = words;
  setTimeout(() => (find("copy").textContent = "Copy"), COPIED);
}

function fillQuestion({ target: form, submitter }) {
  const sentence = state.sentences[state.current];
  const fields = {
    adapter: "",
    ...requested(),
    source: sentence.lang,
    text: sentence.source,
    translation: chosen(sentence).text,
  };
  for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
  // The frame stays as it is when another tab gets the answer.
  if (submitter.formTarget === "_blank") return;
  complain("");
  find("attention").hidden = find("drawing").hidden = false;
  find("attention").classList.add("loading");
}

// The frame has loaded: the page of attention, or an error
function showAttention() {
  if (find("drawing").hidden) return; // it is not wanted any more
  find("drawing").hidden = true;
  find("attention").classList.remove("loading");
  const page = find("attention").contentDocument; // none, if it is the browser's own
  if (page?.contentType === "text/html") return;
  find("attention").hidden = true;
  let message = "The attention cannot be shown.";
  try {
    message = asSentence(JSON.parse(page.body.textContent).error);
  } catch {} // an answer of a proxy
  complain(message);
  find("problem").scrollIntoView({ block: "nearest" });
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
  // Some programs that fill in forms send only one of the two events.
  for (const event of ["input", "change"]) {
    for (const id of ["from", "to"]) {
      find(id).addEventListener(event, () => {
        state.unknown = [];
        showLanguages();
        change(0);
      });
    }
    for (const id of ["settings", "key"]) {
      find(id).addEventListener(event, ({ target }) => {
        if (target.id !== "doubts" && (event === "input" || target.matches("select"))) change();
      });
    }
  }
  find("ask").addEventListener("submit", fillQuestion);
  find("attention").addEventListener("load", showAttention);
  find("choose").addEventListener("click", () => find("file").click());
  find("file").addEventListener("change", ({ target }) => {
    const [file] = target.files;
    if (file) translateFile(file);
  });
  for (const event of ["dragover", "dragleave", "drop"]) {
    addEventListener(event, (drag) => {
      const hasFile = drag.dataTransfer.types.includes("Files") && !find("choose").hidden;
      document.body.classList.toggle("dropping", hasFile && event === "dragover");
      if (!hasFile) return;
      drag.preventDefault();
      if (event === "drop" && drag.dataTransfer.files.length) translateFile(drag.dataTransfer.files[0]);
    });
  }
  // The same file may be chosen again.
  find("file").addEventListener("click", ({ target }) => (target.value = ""));
  addEventListener("hashchange", () => {
    recall();
    change(0);
  });
  find("swap").addEventListener("click", swap);
  find("copy").addEventListener("click", copy);
  find("clear").addEventListener("click", () => {
    source.value = "";
    source.focus();
    change();
  });
}

function start() {
  run(async (signal) => {
    const status = "Asking for the languages …";
    state.languages = await ask("languages", signal, status);
    state.settings = await ask("frontend/settings", signal, status);
    const sources = state.languages.filter(({ targets }) => targets.length);
    fill(find("from"), [{ code: AUTO, name: "Detect language" }, ...sources]);
    find("from").value = sources[0].code;
    showSettings();
    showLanguages();
    recall();
    listen();
    change(0); // what was typed meanwhile
  });
}

find("again").addEventListener("click", () => run(state.action));
start();
