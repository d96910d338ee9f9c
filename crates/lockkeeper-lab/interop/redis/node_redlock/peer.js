// Takes locks with node-redlock on command; see the module `interop` of the lab for the commands.

const { Redis } = require("ioredis");
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");
const readline = require("node:readline");

const say = (answer) => process.stdout.write(`${answer}\n`);

async function obey(redlock, locks, [verb, name, ttl]) {
  if (verb === "unlock") {
    const lock = locks.get(name);
    locks.delete(name);
    if (!lock) return "not-held";
    // Says that the key had another value, or none, by refusing.
    return lock.release().then(() => "unlocked", refused("not-held"));
  }
  const settings = { retryCount: verb === "lock" ? -1 : 0, retryDelay: 20, retryJitter: 10 };
  return redlock.acquire([name], Number(ttl), settings).then((lock) => {
    locks.set(name, lock);
    return "held";
  }, refused("busy"));
}

// The vote of the one server there is; anything else that went wrong is told as it is.
const refused = (answer) => async (error) => {
  if (!(error instanceof ExecutionError)) throw error;
  for (const attempt of await Promise.all(error.attempts)) {
    for (const [, against] of attempt.votesAgainst) {
      if (!(against instanceof ResourceLockedError)) throw against;
    }
  }
  return answer;
};

async function main() {
  const client = new Redis(process.argv[2]);
  const redlock = new Redlock([client], { automaticExtensionThreshold: 0 });
  redlock.on("error", () => {});
  const locks = new Map();
  await client.ping();
  const input = readline.createInterface({ input: process.stdin });
  input.on("close", () => process.exit(0));
  input.on("line", (line) => {
    if (line === "quit") process.exit(0);
    obey(redlock, locks, line.split(" ")).then(say, (error) =>
      say(`error ${error}`.replaceAll("\n", " ")),
    );
  });
  say("ready");
}

main();
