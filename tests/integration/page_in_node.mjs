// Runs the script of a page in Node: node page_in_node.mjs PAGE SEARCH
// The page gets what it uses of a browser. Each line that it puts on top of its log is written to stdout as
// JSON; each line on stdin is a click.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { runInThisContext } from "node:vm";

const [page, search] = process.argv.slice(2);
let shown = "";
const log = {
  get textContent() { return shown; },
  set textContent(text) {
    shown = text;
    process.stdout.write(JSON.stringify(text.split("\n", 1)[0]) + "\n");
  },
};
Math.random = () => 0.1; // pauses that tests can know
globalThis.document = { getElementById: (id) => (id === "log" ? log : null), onclick: null };
globalThis.location = new URL(`http://127.0.0.1/${search}`);
runInThisContext(readFileSync(page, "utf8").match(/<script>(.*)<\/script>/s)[1]);
createInterface({ input: process.stdin })
  .on("line", () => document.onclick())
  .on("close", () => process.exit());
