// Lenses SQL v2 as a page speaks it, in Node's own WebSocket: the one message, as JSON text, is the second argument;
// each line of standard output a message that came, the last one how the connection was closed.
const [, , url, message] = process.argv;
const socket = new WebSocket(url);
socket.onopen = () => socket.send(message);
socket.onmessage = ({ data }) => console.log(data);
socket.onclose = ({ code }) => console.log(JSON.stringify({ type: "CLOSED", code }));
