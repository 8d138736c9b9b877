// Portkey's gateway would listen on all interfaces, and knows no setting for it.
const { Server } = require("net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, { port, host: "127.0.0.1" }, rest.at(-1));
};
