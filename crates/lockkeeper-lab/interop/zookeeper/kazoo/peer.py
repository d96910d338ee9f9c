"""Takes locks with kazoo on command; see the module `interop` of the lab for the commands."""

import os
import queue
import sys
import threading
import time
from urllib.parse import urlsplit

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

SESSION = 4.0

KINDS = {"": Lock, "read": ReadLock, "write": WriteLock}

# Whether the session ended since the start.
lost_once = threading.Event()

# Long enough for one that is free, for what cannot be tried without waiting.
MOMENT = 1.0


def read(orders):
    """In a thread of its own: one who waits for a lock must still hear that the input ended."""
    for line in sys.stdin:
        orders.put(line.split())
    os._exit(0)


def understood(verb):
    """The kind of lock and what is to be done with it: `try-read` and `read-lock`, as spoken."""
    words = verb.split("-")
    kind = next((word for word in words if word in KINDS), "")
    return kind, next(word for word in words if word not in KINDS)


def obey(client, root, locks, order):
    if order[0] == "bench":
        return bench(Lock(client, root + "/" + order[1]), int(order[2]))
    if order[0] == "holds":
        lock = locks.get(("", order[1]))
        # What kazoo tells its users to listen to: a client that is not connected holds nothing for sure.
        lost = not client.connected or lost_once.is_set()
        return "holds" if lock is not None and lock.is_acquired and not lost else "lost"
    if order[0] == "turns":
        tasks, millis = int(order[2]), int(order[3])
        return many_turns(client, root + "/" + order[1], tasks, millis, order[4:] == ["own"])
    if order[0] == "wait":
        return wait(client, root + "/" + order[1], int(order[2]))
    kind, verb = understood(order[0])
    key = (kind, order[1])
    if verb == "unlock":
        lock = locks.pop(key, None)
        return "unlocked" if lock is not None and lock.release() else "not-held"
    if sys.argv[1].endswith("?semaphore"):
        lock = Semaphore(client, root + "/" + order[1], "kazoo", max_leases=2)
        taken = lock.acquire(timeout=None if verb == "lock" else MOMENT)
    else:
        lock = KINDS[kind](client, root + "/" + order[1], "kazoo")
        taken = lock.acquire(blocking=verb == "lock")
    if not taken:
        return "busy"
    locks[key] = lock
    return "held"


def bench(lock, rounds):
    """So many times taken and given back: the seconds that it took."""
    begin = time.perf_counter()
    for _ in range(rounds):
        lock.acquire()
        lock.release()
    return "took " + str(time.perf_counter() - begin)


# How long one who waits goes on after the time is over, in seconds.
GRACE = 2.0


def take_turns(client, path, end, turns):
    while time.monotonic() < end:
        lock, asked = Lock(client, path, "kazoo"), now()
        try:
            lock.acquire(timeout=end + GRACE - time.monotonic())
        except LockTimeout:
            return
        held = releasing = now()
        lock.release()
        turns.append(f"{asked},{held},{releasing},{now()}")


def now():
    return time.monotonic_ns() // 1000


def many_turns(client, path, tasks, millis, own):
    end, turns = time.monotonic() + millis / 1000, []
    paths = [f"{path}/{task}" if own else path for task in range(tasks)]
    threads = [
        threading.Thread(target=take_turns, args=[client, path, end, turns], daemon=True)
        for path in paths
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return " ".join(["turns", *turns])


def wait(client, path, count):
    for _ in range(count):
        lock = Lock(client, path, "kazoo")
        threading.Thread(target=lock.acquire, daemon=True).start()
    return "waiting"


def main():
    url = urlsplit(sys.argv[1])
    client, locks, orders = KazooClient(url.netloc, timeout=SESSION), {}, queue.Queue()
    client.add_listener(lambda state: lost_once.set() if state == KazooState.LOST else None)
    client.start()
    threading.Thread(target=read, args=[orders], daemon=True).start()
    print("ready", flush=True)
    while (order := orders.get()) != ["quit"]:
        try:
            answer = obey(client, url.path, locks, order)
        except Exception as error:
            answer = "error " + repr(error).replace("\n", " ")
        print(answer, flush=True)
    os._exit(0)


main()
