// Runs the script of a page in Node: node page_in_node.mjs PAGE SEARCH [BROWSER]
// BROWSER: JSON with what the browser has `saved` (its localStorage), and the `tokens` that its user types in.
// The page gets what it uses of a browser. Each line that it puts on top of its log is written to stdout as
// JSON, with the milliseconds since the process began; each line on stdin is a click.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { runInThisContext } from "node:vm";

const [page, search, browser = "{}"] = process.argv.slice(2);
const { saved = {}, tokens = [] } = JSON.parse(browser);
let shown = "";
const log = {
  get textContent() { return shown; },
  set textContent(text) {
    shown = text;
    process.stdout.write(JSON.stringify([performance.now(), text.split("\n", 1)[0]]) + "\n");
  },
};
Math.random = () => 0.1; // pauses that tests can know
const has = (name, value) => Object.defineProperty(globalThis, name, { value });
has("localStorage", { getItem: (key) => saved[key] ?? null, setItem: (key, value) => { saved[key] = value; } });
has("sessionStorage", {});
has("prompt", () => tokens.shift() ?? null);
globalThis.document = { getElementById: (id) => (id === "log" ? log : null), onclick: null };
globalThis.location = new URL(`http://127.0.0.1/${search}`);
runInThisContext(readFileSync(page, "utf8").match(/<script>(.*)<\/script>/s)[1]);
createInterface({ input: process.stdin })
  .on("line", () => document.onclick())
  .on("close", () => process.exit());
