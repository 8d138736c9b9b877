// An OpenID provider on loopback for tests: people log in with any password, and their groups are
// part of their name: `alice+leads+admins` is alice, in two groups.
// node oidc_issuer.mjs CLIENTS_JSON; prints two addresses: of an issuer whose ID tokens have all claims,
// and of one that keeps them for userinfo. POST /rotate: new keys, the old ones gone.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const clients = JSON.parse(process.argv[2]);

function keys() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { keys: [{ ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig" }] };
}

function findAccount(_, id) {
  const [name, ...groups] = id.split("+");
  return { accountId: id, claims: () => ({ sub: id, preferred_username: name, groups }) };
}

function provider(issuer, isShort) {
  return new Provider(issuer, {
    clients,
    findAccount,
    jwks: keys(),
    cookies: { keys: ["a key of the tests"] },
    claims: { profile: ["preferred_username", "groups"] },
    conformIdTokenClaims: isShort,
    features: { devInteractions: { enabled: true } },
  });
}

console.warn = () => {}; // it warns of what is for development alone
function serve(isShort) {
  const server = createServer();
  return new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () => {
      const issuer = `http://localhost:${server.address().port}`;
      let answer = provider(issuer, isShort).callback();
      server.on("request", (request, response) => {
        if (request.url !== "/rotate") return answer(request, response);
        answer = provider(issuer, isShort).callback();
        response.end();
      });
      resolve(issuer);
    }),
  );
}
console.log(await serve(false), await serve(true));
