// Searches the built site as a browser does: node docs/site/search.js WORD ...
//
// Runs the theme's own worker over build/site, and prints the first page of each.

const fs = require("fs");
const vm = require("vm");

const site = `${__dirname}/../../build/site`;
const workers = `${site}/assets/javascripts/workers`;
const [file] = fs.readdirSync(workers).filter((name) => name.endsWith(".js"));
const index = JSON.parse(fs.readFileSync(`${site}/search/search_index.json`));

let answer;
let ask;
const self = {
  console,
  addEventListener: (_, listener) => { ask = listener; },
  postMessage: (message) => answer(message.data),
};
self.self = self;
vm.runInNewContext(fs.readFileSync(`${workers}/${file}`, "utf8"), self);

// The worker's messages: 0 sets up, 2 searches.
const send = (type, data) =>
  new Promise((resolve) => { answer = resolve; ask({ data: { type, data } }); });

(async () => {
  await send(0, { ...index, options: {} });
  for (const word of process.argv.slice(2)) {
    const [first] = (await send(2, word)).items;
    console.log(first ? first[0].location.split("#")[0] : "nothing");
  }
})();
