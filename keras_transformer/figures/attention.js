"use strict";

const FAINTEST = 0.01; // relative to the strongest weight; weaker ones get no line
const MOST_LINES = 4000; // only the strongest ones are drawn
const VIEWS = ["lines", "heat map", "overview"];
const UNITS = ["subwords", "words"];
const LISTED = 10; // tokens in the list of the greatest weights

const data = JSON.parse(document.getElementById("data").textContent);
const state = {
  kind: data.kinds[0],
  layer: data.kinds[0].layers - 1,
  heads: new Set(Array(data.kinds[0].heads).keys()),
  view: "lines",
  unit: "subwords",
  over: null, // the token under the mouse or the focus: {side, index}
  kept: null, // the token that was clicked
  cell: null, // of the heat map: {row, column}
};
const dark = matchMedia("(prefers-color-scheme: dark)");
let weights = null; // by kind: Uint16Array [layers, heads, queries, keys]
let shown = null; // {queries, keys, heads: [{head, values}]} as it is drawn

const find = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

// Decodes the weights, stored compressed: all low bytes, then all high bytes

async function readWeights() {
  const packed = Uint8Array.from(atob(data.weights), (c) => c.charCodeAt(0));
  const stream = new Blob([packed])
    .stream()
    .pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const number = bytes.length / 2;
  const all = new Uint16Array(number);
  for (let i = 0; i < number; i++) {
    all[i] = bytes[i] | (bytes[number + i] << 8);
  }
  const found = {};
  let start = 0;
  for (const kind of data.kinds) {
    const size =
      data.tokens[kind.queries].length * data.tokens[kind.keys].length;
    const end = start + kind.layers * kind.heads * size;
    found[kind.name] = all.subarray(start, end);
    start = end;
  }
  return found;
}

function matrixOf(layer, head) {
  const queries = data.tokens[state.kind.queries].length;
  const size = queries * data.tokens[state.kind.keys].length;
  const start = (layer * state.kind.heads + head) * size;
  return Float32Array.from(
    weights[state.kind.name].subarray(start, start + size),
    (number) => number / data.whole,
  );
}

// Words: attention to a word is the sum over its tokens, attention from a word
// the mean over its tokens

// Scripts that are written without spaces between words
const UNSPACED =
  /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}\p{scx=Tibt}]/u;

function wordsOf(tokens, language) {
  const words = [];
  tokens.forEach(([text, starts, special], index) => {
    const last = words[words.length - 1];
    if (starts || !last || last.special) {
      words.push({ text, starts: true, special, tokens: [index] });
    } else {
      last.text += text;
      last.tokens.push(index);
    }
  });
  return words.flatMap((word) =>
    UNSPACED.test(word.text) && !word.special
      ? divided(word, tokens, language)
      : [word],
  );
}

// Finds words in a run without spaces by the browser's dictionary. A word begins
// only where a token does. Without a dictionary, each token is a word.
function divided(run, tokens, language) {
  let starts = null;
  if (Intl.Segmenter) {
    const segmenter = new Intl.Segmenter(localeOf(language), { granularity: "word" });
    starts = new Set([...segmenter.segment(run.text)].map(({ index }) => index));
  }
  const words = [];
  let position = 0;
  for (const index of run.tokens) {
    const [text] = tokens[index];
    if (!words.length || !starts || starts.has(position)) {
      words.push({ text, starts: true, special: false, tokens: [index] });
    } else {
      words[words.length - 1].text += text;
      words[words.length - 1].tokens.push(index);
    }
    position += text.length;
  }
  return words;
}

function localeOf(language) {
  try {
    return Intl.getCanonicalLocales(language.replace("_", "-"));
  } catch {
    return []; // the browser does not know the language code
  }
}

function unitsOf(name) {
  const tokens = data.tokens[name];
  if (state.unit === "words") return wordsOf(tokens, sentenceOf(name).language);
  return tokens.map(([text, starts, special], index) => ({
    text,
    starts,
    special,
    tokens: [index],
  }));
}

// Returns the weights of a head between the units shown
function valuesOf(layer, head, queries, keys) {
  const matrix = matrixOf(layer, head);
  const width = data.tokens[state.kind.keys].length;
  const values = new Float32Array(queries.length * keys.length);
  queries.forEach((query, i) => {
    keys.forEach((key, j) => {
      let sum = 0;
      for (const t of query.tokens) {
        for (const s of key.tokens) sum += matrix[t * width + s];
      }
      values[i * keys.length + j] = sum / query.tokens.length;
    });
  });
  return values;
}

function chosenHeads() {
  return [...state.heads].sort((a, b) => a - b);
}

function prepare() {
  const queries = unitsOf(state.kind.queries);
  const keys = unitsOf(state.kind.keys);
  const heads = chosenHeads().map((head) => ({
    head,
    values: valuesOf(state.layer, head, queries, keys),
  }));
  shown = { queries, keys, heads };
}

function weight(head, row, column) {
  return head.values[row * shown.keys.length + column];
}

function mean(row, column) {
  if (!shown.heads.length) return 0;
  const sum = shown.heads.reduce((s, head) => s + weight(head, row, column), 0);
  return sum / shown.heads.length;
}

// Controls

function colorOf(head) {
  return state.kind.colors[dark.matches ? "dark" : "light"][head];
}

function paintHead(node, head) {
  node.style.setProperty("--color", colorOf(head));
  return node;
}

function addChoices(id, name, choices) {
  for (const [value, words] of choices) {
    const input = make("input", { type: "radio", name, value });
    find(id).append(make("label", {}, input, words));
  }
}

function clearChoices(id) {
  find(id).querySelectorAll("label, button").forEach((node) => node.remove());
}

function addLayersAndHeads() {
  for (const id of ["layers", "heads"]) clearChoices(id);
  const layers = [...Array(state.kind.layers).keys()];
  addChoices("layers", "layer", layers.map((i) => [String(i), String(i + 1)]));
  for (let head = 0; head < state.kind.heads; head++) {
    const input = make("input", { type: "checkbox", name: "head", value: head });
    find("heads").append(
      paintHead(make("label", {}, input, String(head + 1)), head),
    );
  }
  const all = make("button", { type: "button", id: "all" }, "all");
  all.addEventListener("click", () => chooseHeads(Array(state.kind.heads).keys()));
  find("heads").append(all);
}

function chooseHeads(heads) {
  state.heads = new Set(heads);
  showChoices();
  draw();
}

// Sets radio buttons and boxes as in the state
function showChoices() {
  const chosen = { kind: state.kind.name, layer: String(state.layer), view: state.view, unit: state.unit };
  for (const input of find("controls").querySelectorAll("input")) {
    input.checked =
      input.name === "head"
        ? state.heads.has(Number(input.value))
        : input.value === chosen[input.name];
  }
}

function chooseKind(name) {
  state.kind = data.kinds.find((kind) => kind.name === name);
  state.layer = Math.min(state.layer, state.kind.layers - 1);
  const heads = [...state.heads].filter((head) => head < state.kind.heads);
  state.heads = new Set(heads);
  addLayersAndHeads();
  showChoices();
  forgetTokens();
}

function forgetTokens() {
  state.over = state.kept = state.cell = null;
}

function listen() {
  const form = find("controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", ({ target }) => {
    if (target.name === "head") {
      const head = Number(target.value);
      if (target.checked) state.heads.add(head);
      else state.heads.delete(head);
    } else if (target.name === "kind") {
      chooseKind(target.value);
    } else if (target.name === "layer") {
      state.layer = Number(target.value);
    } else {
      state[target.name] = target.value;
      forgetTokens();
    }
    draw();
  });
  const alone = (event) => {
    const input = event.target.closest("label")?.querySelector("input");
    if (input?.name !== "head") return;
    event.preventDefault();
    chooseHeads([Number(input.value)]);
  };
  form.addEventListener("dblclick", alone);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter") alone(event);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    state.kept = null;
    update();
  });
}

// Tokens

// Returns the sentence of "source", "written" or "read" tokens
function sentenceOf(name) {
  return data.sentences[name === "source" ? 0 : 1];
}

function tokenText(unit, side) {
  const { language, direction } = sentenceOf(state.kind[side]);
  const dir = unit.special ? "ltr" : direction;
  return make("bdi", { dir, lang: unit.special ? "en" : language }, unit.text);
}

function fillColumn(side) {
  const list = find(side);
  list.replaceChildren();
  shown[side].forEach((unit, index) => {
    const button = make("button", { type: "button", class: "token", "aria-pressed": "false" }, tokenText(unit, side));
    button.classList.toggle("special", unit.special);
    button.tabIndex = index === 0 ? 0 : -1;
    button.dataset.index = index;
    const item = make("li", { class: unit.starts ? "start" : "" }, button);
    list.append(item);
  });
}

function watchColumn(side) {
  const list = find(side);
  const over = (event) => {
    const button = event.target.closest(".token");
    if (!button) return;
    state.over = { side, index: Number(button.dataset.index) };
    update();
  };
  const away = () => {
    state.over = null;
    update();
  };
  list.addEventListener("pointerover", over);
  list.addEventListener("pointerleave", away);
  list.addEventListener("focusin", over);
  list.addEventListener("focusout", away);
  list.addEventListener("click", (event) => {
    const button = event.target.closest(".token");
    if (!button) return;
    const index = Number(button.dataset.index);
    const same = state.kept?.side === side && state.kept.index === index;
    state.kept = same ? null : { side, index };
    update();
  });
  watchKeys(list, ({ target }) => {
    const index = Number(target.dataset.index);
    return {
      ArrowDown: () => focusOne(list, index + 1),
      ArrowUp: () => focusOne(list, index - 1),
      Home: () => focusOne(list, 0),
      End: () => focusOne(list, shown[side].length - 1),
      ArrowLeft: () => focusOne(find("queries"), nearest(index, side, "queries")),
      ArrowRight: () => focusOne(find("keys"), nearest(index, side, "keys")),
    };
  });
}

// Calls the function that belongs to a pressed key
function watchKeys(node, actionsOf) {
  node.addEventListener("keydown", (event) => {
    const action = actionsOf(event)[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function nearest(index, side, other) {
  const share = index / Math.max(1, shown[side].length - 1);
  return Math.round(share * (shown[other].length - 1));
}

// Focuses one of the buttons in a node, and lets Tab reach no other
function focusOne(node, index) {
  const buttons = [...node.querySelectorAll("button")];
  const button = buttons.at(Math.max(0, Math.min(index, buttons.length - 1)));
  buttons.forEach((other) => (other.tabIndex = other === button ? 0 : -1));
  button.focus();
}

// Lines

function chosenToken() {
  return state.over ?? state.kept;
}

function centers(side) {
  const top = find("lines").getBoundingClientRect().top;
  return [...find(side).querySelectorAll(".token")].map((button) => {
    const box = button.getBoundingClientRect();
    return (box.top + box.bottom) / 2 - top;
  });
}

function linksOf(token) {
  const links = [];
  const rows = token?.side === "queries" ? [token.index] : shown.queries.keys();
  for (const row of rows) {
    const columns = token?.side === "keys" ? [token.index] : shown.keys.keys();
    for (const column of columns) {
      for (const head of shown.heads) {
        const value = weight(head, row, column);
        links.push({ row, column, head: head.head, value });
      }
    }
  }
  const strongest = greatest(links);
  return links.filter(({ value }) => value > 0 && value >= FAINTEST * strongest);
}

function greatest(links) {
  return links.reduce((most, { value }) => Math.max(most, value), 0);
}

function drawLinks(token) {
  const links = linksOf(token);
  const found = links.length;
  const strongest = greatest(links);
  if (found > MOST_LINES) {
    links.sort((a, b) => b.value - a.value).splice(MOST_LINES);
  }
  const left = centers("queries");
  const right = centers("keys");
  const svg = find("links");
  const width = svg.getBoundingClientRect().width;
  const heights = ["queries", "keys"].map((side) => find(side).offsetHeight);
  svg.style.height = `${Math.max(...heights)}px`;
  const order = shown.heads.map((head) => head.head);
  const spread = Math.min(2.5, 12 / Math.max(1, order.length));
  svg.replaceChildren(
    ...links.map(({ row, column, head, value }) => {
      const shift = (order.indexOf(head) - (order.length - 1) / 2) * spread;
      const y1 = left[row] + shift;
      const y2 = right[column] + shift;
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", `M0 ${y1} C${width / 2} ${y1} ${width / 2} ${y2} ${width} ${y2}`);
      // Relative to the strongest shown: among 100 tokens, all would be faint.
      path.setAttribute("stroke-opacity", (value / strongest).toFixed(3));
      path.dataset.row = row;
      path.dataset.column = column;
      path.dataset.head = head;
      return paintHead(path, head);
    }),
  );
  const least = found > MOST_LINES ? links[MOST_LINES - 1].value : FAINTEST * strongest;
  find("count").textContent =
    `${links.length} lines of ${found}; the strongest is ${percent(strongest)},` +
    " a line's opacity is its share of that, and weights below" +
    ` ${(100 * least).toFixed(2)} % have none.`;
}

function paintTokens(token) {
  const strongest = token ? greatest(linksOf(token)) : 0;
  for (const side of ["queries", "keys"]) {
    find(side).querySelectorAll(".token").forEach((button, index) => {
      const isChosen = token?.side === side && token.index === index;
      button.classList.toggle("active", isChosen);
      const isKept = state.kept?.side === side && state.kept.index === index;
      button.setAttribute("aria-pressed", String(isKept));
      button.style.backgroundImage =
        token && token.side !== side ? stripes(token, index, strongest) : "";
    });
  }
}

function weightOf(head, token, index) {
  return token.side === "queries"
    ? weight(head, token.index, index)
    : weight(head, index, token.index);
}

function stripes(token, index, strongest) {
  // One stripe for each head, as opaque as its share of the strongest weight.
  const width = 100 / Math.max(1, shown.heads.length);
  const stops = shown.heads.flatMap((head, i) => {
    const share = strongest ? weightOf(head, token, index) / strongest : 0;
    const opacity = Math.round(0.75 * 255 * share).toString(16).padStart(2, "0");
    const color = colorOf(head.head) + opacity;
    return [`${color} ${(i * width).toFixed(2)}%`, `${color} ${((i + 1) * width).toFixed(2)}%`];
  });
  return stops.length ? `linear-gradient(to right, ${stops.join(", ")})` : "";
}

// Heat map

function step() {
  return Math.max(shown.queries.length, shown.keys.length) > 60 ? 18 : 24;
}

function drawMap() {
  const size = step();
  const map = find("map");
  map.style.setProperty("--step", `${size}px`);
  const fill = (id, units, side) => {
    find(id).replaceChildren(
      ...units.map((unit) => make("li", { class: unit.special ? "special" : "" }, tokenText(unit, side))),
    );
  };
  fill("rows", shown.queries, "queries");
  fill("columns", shown.keys, "keys");
  const canvas = find("canvas");
  const scale = window.devicePixelRatio || 1;
  const width = size * shown.keys.length;
  const height = size * shown.queries.length;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const color = getComputedStyle(document.documentElement).getPropertyValue("--map");
  let strongest = 0;
  for (let row = 0; row < shown.queries.length; row++) {
    for (let column = 0; column < shown.keys.length; column++) {
      strongest = Math.max(strongest, mean(row, column));
    }
  }
  for (let row = 0; row < shown.queries.length; row++) {
    for (let column = 0; column < shown.keys.length; column++) {
      const share = strongest ? mean(row, column) / strongest : 0;
      context.fillStyle = `rgba(${color}, ${share.toFixed(3)})`;
      context.fillRect(column * size, row * size, size - 1, size - 1);
    }
  }
  const heads = shown.heads.length === 1 ? "" : ", the mean over the chosen heads";
  find("count").textContent =
    `The strongest cell is ${percent(strongest)}${heads}; a cell's color is its` +
    " share of that.";
}

function paintCell() {
  const cell = state.cell;
  find("cell").hidden = !cell;
  if (cell) {
    find("cell").style.left = `${cell.column * step()}px`;
    find("cell").style.top = `${cell.row * step()}px`;
  }
  for (const [id, index] of [["rows", cell?.row], ["columns", cell?.column]]) {
    [...find(id).children].forEach((item, i) => item.classList.toggle("active", i === index));
  }
}

function watchMap() {
  const cells = find("cells");
  const clamp = (value, limit) => Math.max(0, Math.min(value, limit - 1));
  const choose = (row, column) => {
    state.cell = {
      row: clamp(row, shown.queries.length),
      column: clamp(column, shown.keys.length),
    };
    update();
  };
  cells.addEventListener("pointermove", (event) => {
    const box = find("canvas").getBoundingClientRect();
    choose(
      Math.floor((event.clientY - box.top) / step()),
      Math.floor((event.clientX - box.left) / step()),
    );
  });
  cells.addEventListener("pointerleave", () => {
    if (document.activeElement === cells) return;
    state.cell = null;
    update();
  });
  cells.addEventListener("focus", () => {
    if (!state.cell) choose(0, 0);
  });
  const go = (row, column) => {
    choose(row, column);
    find("cell").scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  watchKeys(cells, () => {
    const { row, column } = state.cell ?? { row: 0, column: 0 };
    return {
      ArrowDown: () => go(row + 1, column),
      ArrowUp: () => go(row - 1, column),
      ArrowLeft: () => go(row, column - 1),
      ArrowRight: () => go(row, column + 1),
      Home: () => go(row, 0),
      End: () => go(row, shown.keys.length - 1),
    };
  });
}

// Overview: a small picture of every layer and head

function drawOverview() {
  const { layers, heads } = state.kind;
  const { queries, keys } = shown;
  const overview = find("overview");
  overview.style.setProperty("--heads", heads);
  overview.classList.toggle("large", Math.max(queries.length, keys.length) > 60);
  const parts = [make("span")];
  for (let head = 0; head < heads; head++) {
    parts.push(paintHead(make("span", { class: "head" }, `head ${head + 1}`), head));
  }
  for (let layer = 0; layer < layers; layer++) {
    parts.push(make("span", { class: "layer" }, `layer ${layer + 1}`));
    for (let head = 0; head < heads; head++) {
      const label = `Open layer ${layer + 1}, head ${head + 1}`;
      const button = make("button", { type: "button", title: label, "aria-label": label });
      button.append(picture(valuesOf(layer, head, queries, keys), head));
      button.tabIndex = parts.length === heads + 2 ? 0 : -1;
      button.addEventListener("click", () => openHead(layer, head));
      parts.push(button);
    }
  }
  overview.replaceChildren(...parts);
  find("count").textContent =
    "A picture has a row for each token that attends, a column for each one" +
    " attended to; a color is the weight as a share of the head's strongest.";
}

function picture(values, head) {
  const height = shown.queries.length;
  const width = shown.keys.length;
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  const code = parseInt(colorOf(head).slice(1), 16);
  const strongest = values.reduce((most, value) => Math.max(most, value), 0);
  values.forEach((value, i) => {
    const share = strongest ? value / strongest : 0;
    pixels.data.set([code >> 16, (code >> 8) & 255, code & 255, 255 * share], 4 * i);
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}

function openHead(layer, head) {
  state.layer = layer;
  state.view = "lines";
  chooseHeads([head]);
  find("views").querySelector("input:checked").focus();
}

function watchOverview() {
  const overview = find("overview");
  watchKeys(overview, ({ target }) => {
    const { layers, heads } = state.kind;
    const last = layers * heads - 1;
    const index = [...overview.querySelectorAll("button")].indexOf(target);
    const go = (next) => () => next < 0 || next > last || focusOne(overview, next);
    return {
      ArrowRight: go(index + 1),
      ArrowLeft: go(index - 1),
      ArrowDown: go(index + heads),
      ArrowUp: go(index - heads),
      Home: go(0),
      End: go(last),
    };
  });
}

// The weights of one token or one cell

function percent(value) {
  return `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;
}

function quoted(side, index) {
  return make("strong", {}, tokenText(shown[side][index], side), ` (${index + 1})`);
}

function swatch(head) {
  const box = make("span", { class: "swatch", "aria-hidden": "true" });
  return make("td", {}, paintHead(box, head), `head ${head + 1}`);
}

function rowsOfCell({ row, column }) {
  return shown.heads.map((head) =>
    make("tr", {}, swatch(head.head), make("td", { class: "number" }, percent(weight(head, row, column)))),
  );
}

function rowsOfToken(token) {
  const other = token.side === "queries" ? "keys" : "queries";
  return shown[other]
    .map((_, index) => ({
      index,
      value: token.side === "queries" ? mean(token.index, index) : mean(index, token.index),
    }))
    .sort((a, b) => b.value - a.value)
    .slice(0, LISTED)
    .map(({ index, value }) =>
      make("tr", {}, make("td", { class: "number" }, percent(value)), make("td", {}, quoted(other, index))),
    );
}

function describe() {
  const details = find("details");
  const heads = shown.heads.length;
  const over = heads === 1 ? `head ${shown.heads[0].head + 1}` : `mean over ${heads} heads`;
  const say = (...words) => make("p", {}, ...words);
  if (state.view === "overview") {
    details.replaceChildren(say("Choose a picture to open its layer and head."));
  } else if (!heads) {
    details.replaceChildren(say("No head is chosen."));
  } else if (state.view === "heat map" && state.cell) {
    const { row, column } = state.cell;
    details.replaceChildren(
      say(quoted("queries", row), " attends to ", quoted("keys", column), `: ${percent(mean(row, column))}, ${over}`),
      make("table", {}, ...rowsOfCell(state.cell)),
    );
  } else if (state.view === "lines" && chosenToken()) {
    const token = chosenToken();
    const verb = token.side === "queries" ? " attends to" : " is attended to by";
    details.replaceChildren(
      say(quoted(token.side, token.index), `${verb} (${over}):`),
      make("table", {}, ...rowsOfToken(token)),
    );
  } else {
    const what = state.view === "lines" ? "a token" : "a cell";
    details.replaceChildren(say(`Choose ${what} to see its weights.`));
  }
}

// The view in the address, so that a link keeps it

function address() {
  const parts = new URLSearchParams({
    kind: state.kind.name,
    layer: state.layer + 1,
    heads: chosenHeads().map((head) => head + 1).join(" "),
    view: state.view,
    unit: state.unit,
  });
  if (state.kept) parts.set("token", `${state.kept.side} ${state.kept.index + 1}`);
  return `#${parts}`;
}

function writeAddress() {
  if (find("link").getAttribute("href") === address()) return;
  find("link").href = address();
  try {
    history.replaceState(null, "", address());
  } catch {
    // The frame of a notebook has no address of its own.
  }
}

// Reads the state from the address. Parts that the figure lacks are ignored.
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const indexOf = (number, limit) =>
    /^\d+$/.test(number) && number >= 1 && number <= limit ? number - 1 : null;
  const kind = data.kinds.find(({ name }) => name === parts.get("kind"));
  state.kind = kind ?? state.kind;
  const { layers, heads } = state.kind;
  state.layer = indexOf(parts.get("layer"), layers) ?? Math.min(state.layer, layers - 1);
  if (parts.has("heads")) {
    const chosen = parts.get("heads").split(" ").map((head) => indexOf(head, heads));
    state.heads = new Set(chosen.filter((head) => head !== null));
  }
  for (const [name, choices] of [["view", VIEWS], ["unit", UNITS]]) {
    if (choices.includes(parts.get(name))) state[name] = parts.get(name);
  }
  forgetTokens();
  prepare();
  const [side, number] = (parts.get("token") ?? "").split(" ");
  if (["queries", "keys"].includes(side)) {
    const index = indexOf(number, shown[side].length);
    state.kept = index === null ? null : { side, index };
  }
}

// All of it

const NOTES = {
  source: "the tokens of the source",
  written: "the token that the decoder is about to write",
  read: "the tokens that it has read, BOS first",
};

function update() {
  if (state.view === "lines") {
    const token = chosenToken();
    drawLinks(token);
    paintTokens(token);
  } else if (state.view === "heat map") {
    paintCell();
  }
  describe();
  writeAddress();
}

function draw() {
  prepare();
  find("lines").hidden = state.view !== "lines";
  find("map").hidden = state.view !== "heat map";
  find("overview").hidden = state.view !== "overview";
  for (const id of ["layers", "heads"]) find(id).disabled = state.view === "overview";
  const { title, queries, keys } = state.kind;
  const places = state.view === "lines" ? ["Left", "right"] : ["Rows", "columns"];
  const layer = state.view === "overview" ? "all layers and heads" : `layer ${state.layer + 1} of ${state.kind.layers}`;
  find("note").textContent =
    `${title}, ${layer}. ` +
    `${places[0]}: ${NOTES[queries]}; ${places[1]}: ${NOTES[keys]}.`;
  if (state.view === "lines") {
    fillColumn("queries");
    fillColumn("keys");
  } else if (state.view === "heat map") {
    drawMap();
  } else {
    drawOverview();
  }
  update();
}

// Draws everything as in the state, whose kind may have changed
function show() {
  addLayersAndHeads();
  showChoices();
  draw();
}

async function start() {
  weights = await readWeights();
  addChoices("kinds", "kind", data.kinds.map(({ name, title }) => [name, title]));
  addChoices("views", "view", VIEWS.map((name) => [name, name]));
  addChoices("units", "unit", UNITS.map((name) => [name, name]));
  listen();
  for (const side of ["queries", "keys"]) watchColumn(side);
  watchMap();
  watchOverview();
  readAddress();
  find("link").href = address(); // nothing has changed yet
  // In the frame of a notebook, the link would lead to the notebook.
  find("link").parentElement.hidden = location.protocol === "about:";
  show();
  document.querySelector(".token[aria-pressed=true]")?.scrollIntoView({ block: "center" });
  new ResizeObserver(update).observe(find("lines"));
  dark.addEventListener("change", show);
  addEventListener("hashchange", () => {
    readAddress();
    show();
  });
  document.body.dataset.ready = "true";
}

start().catch((error) => {
  find("note").textContent = `This browser cannot show the page: ${error}`;
});
