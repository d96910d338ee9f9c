// Takes locks with node-redlock on command; see the module `interop` of the lab for the commands.

const { Redis } = require("ioredis");
const { default: Redlock, ExecutionError, ResourceLockedError } = require("redlock");
const readline = require("node:readline");
const { setTimeout: sleep } = require("node:timers/promises");

const say = (answer) => process.stdout.write(`${answer}\n`);

// How long one who waits goes on after the time is over.
const GRACE = 2000;
// The ttl of locks that are only measured.
const MEASURED = 30000;

// Microseconds of a clock that all processes share.
const now = () => process.hrtime.bigint() / 1000n;

// As long as it takes, but not beyond `last`.
async function waitFor(redlock, name, last) {
  while (Date.now() < last) {
    const held = new Map();
    const answer = await attempt(redlock, held, name, MEASURED);
    if (answer === "held") return held.get(name);
    await sleep(10 + 20 * Math.random());
  }
  return null;
}

async function turns(redlock, name, tasks, millis, own) {
  const end = Date.now() + millis;
  const all = ["turns"];
  const take = async (name) => {
    while (Date.now() < end) {
      const asked = now();
      const lock = await waitFor(redlock, name, end + GRACE);
      if (!lock) return;
      const held = now();
      const releasing = now();
      await lock.release();
      all.push(`${asked},${held},${releasing},${now()}`);
    }
  };
  const names = Array.from({ length: tasks }, (_, task) => (own ? `${name}/${task}` : name));
  await Promise.all(names.map(take));
  return all.join(" ");
}

async function obey(redlock, locks, [verb, name, ttl, length, own]) {
  if (verb === "holds") {
    const lock = locks.get(name);
    return lock && lock.expiration > Date.now() ? "holds" : "lost";
  }
  if (verb === "turns") return turns(redlock, name, Number(ttl), Number(length), own === "own");
  if (verb === "wait") {
    for (let count = 0; count < Number(ttl); count += 1) {
      waitFor(redlock, name, Infinity).catch(() => {});
    }
    return "waiting";
  }
  if (verb === "unlock") {
    const lock = locks.get(name);
    locks.delete(name);
    if (!lock) return "not-held";
    // Says that the key had another value, or none, by refusing.
    return lock.release().then(() => "unlocked", refused("not-held"));
  }
  for (;;) {
    const answer = await attempt(redlock, locks, name, Number(ttl));
    if (answer === "held" || verb === "try") return answer;
    await sleep(10 + 20 * Math.random());
  }
}

// One attempt, after which the library gives back the votes it got. Its own retries do not: with
// `retryCount` it keeps a minority's votes, which then count against itself, and two that wait like that
// keep everyone out until their ttl is over.
const attempt = (redlock, locks, name, ttl) =>
  redlock.acquire([name], ttl, { retryCount: 0 }).then((lock) => {
    locks.set(name, lock);
    return "held";
  }, refused("busy"));

// The votes of the servers; anything else that went wrong is told as it is.
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
  // One server, redis://host:port, or several, redlock://host:port,host:port.
  const [, hosts] = process.argv[2].split("://");
  const clients = hosts.split(",").map((host) => new Redis(`redis://${host}`));
  const redlock = new Redlock(clients, { automaticExtensionThreshold: 0 });
  redlock.on("error", () => {});
  const locks = new Map();
  await Promise.all(clients.map((client) => client.ping()));
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
