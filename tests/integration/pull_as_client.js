// What every independent client does, in JavaScript: it subscribes, pulls three events and unsubscribes. The
// promise is of the messages that it was sent, as they came, until the last one or an error.
const talk = (url, source) => new Promise((done) => {
  const socket = new WebSocket(url), heard = [];
  const say = (type, more) => socket.send(JSON.stringify({ type, sourceId: source, ...more }));
  socket.onopen = () => say("SUBSCRIBE", { mode: "pull" });
  socket.onerror = () => done([...heard, { type: "refused" }]);
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    heard.push(message);
    if (message.type === "SUBSCRIBE_OK") say("REQUEST", { n: 3 });
    else if (heard.length === 5) say("UNSUBSCRIBE");
    else if (message.type.startsWith("UNSUBSCRIBE")) { socket.onerror = null; socket.close(); done(heard); }
  };
});
