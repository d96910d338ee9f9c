"""Takes locks with kazoo on command; see the module `interop` of the lab for the commands."""

import os
import queue
import sys
import threading
import time
from urllib.parse import urlsplit

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

SESSION = 4.0

KINDS = {"": Lock, "read": ReadLock, "write": WriteLock}

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


def main():
    url = urlsplit(sys.argv[1])
    client, locks, orders = KazooClient(url.netloc, timeout=SESSION), {}, queue.Queue()
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
