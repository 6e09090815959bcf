// usage: node search_first.mjs SITE WORDS.. : the page that the search of a built site lists first, for each of WORDS, as JSON
import { readFileSync, readdirSync } from "node:fs";
import vm from "node:vm";

const [site, ...searches] = process.argv.slice(2);
const workers = `${site}/assets/javascripts/workers`;
const worker = readdirSync(workers).find((name) => /^search\..*\.min\.js$/.test(name));

// The site's own worker, with as much of a browser as it needs: it is sent messages, and answers each with one.
let receive, answered;
const browser = vm.createContext({
  console,
  addEventListener: (_, listener) => (receive = listener),
  postMessage: (message) => answered(message.data),
});
browser.self = browser;
const ask = (type, data) => new Promise((resolve) => ((answered = resolve), receive({ data: { type, data } })));

vm.runInContext(readFileSync(`${workers}/${worker}`, "utf8"), browser);
vm.runInContext(readFileSync(`${site}/search/search_index.js`, "utf8"), browser); // what pages from files load: __index
await ask(0, { ...browser.__index, options: { suggest: true } });

const first = {};
for (const words of searches) {
  const { items } = await ask(2, words);
  first[words] = items.length ? items[0][0].location.split("#")[0] : "";
}
console.log(JSON.stringify(first));
