// Runs the lines of docs/guides/clients.md that resume, in Node: node resume_in_node.mjs PAGE SOURCE URL...
// Connects to one address after the other and writes, a line each, "subscribed", "dropped" with the number that
// a LAG notice says, "error ..." and the partition and offset of every event, or its count where it has none.
import { readFileSync } from "node:fs";

const [page, source, ...urls] = process.argv.slice(2);
const lines = readFileSync(page, "utf8").match(/```js\n(.*?)```/s)[1];
const ours = lines.replace('"flights"', JSON.stringify(source));
const { subscribe, note } = new Function(`${ours}\nreturn { subscribe, note };`)();
const write = (line) => process.stdout.write(`${line}\n`);
let turn = 0;

function hear(message) {
  const { type, data } = message;
  if (type === "RESULT") write("offset" in data ? `${data.partition} ${data.offset}` : `count ${data.count}`);
  else if (type === "SUBSCRIBE_OK") write("subscribed");
  else if (data.type === "LAG") write(`dropped ${data.dropped}`);
  else write(`error ${JSON.stringify(message)}`);
  note(message);
}
function connect() {
  const socket = new WebSocket(urls[turn++ % urls.length]);
  socket.onopen = () => subscribe(socket);
  socket.onmessage = ({ data }) => hear(JSON.parse(data));
  socket.onclose = () => setTimeout(connect, 50);
}
connect();
