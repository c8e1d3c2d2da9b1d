// Lenses v1 as a page speaks it, in Node's own WebSocket: each line of standard input is a request, as JSON text;
// each line of standard output a message that came. Numbers above 2^53 stay text, so nothing is parsed here.
import { createInterface } from "node:readline";

const socket = new WebSocket(process.argv[2]);
socket.onmessage = ({ data }) => console.log(data);
socket.onclose = ({ code }) => console.log(JSON.stringify({ type: "CLOSED", code }));
socket.onopen = () => createInterface({ input: process.stdin })
  .on("line", (line) => socket.send(line))
  .on("close", () => socket.close());
