"""Takes locks with redis-py on command; see the module `interop` of the lab for the commands."""

import os
import queue
import sys
import threading

import redis
from redis.exceptions import LockError


def read(orders):
    """In a thread of its own: one who waits for a lock must still hear that the input ended."""
    for line in sys.stdin:
        orders.put(line.split())
    os._exit(0)


def obey(client, locks, order):
    verb, name = order[0], order[1]
    if verb == "unlock":
        try:
            locks.pop(name).release()
            return "unlocked"
        except (KeyError, LockError):
            return "not-held"
    # A ttl of zero: none at all, which is what redis-py does unless told otherwise.
    ttl = int(order[2]) / 1000 or None
    lock = client.lock(name, timeout=ttl, sleep=0.02, thread_local=False)
    if not lock.acquire(blocking=verb == "lock"):
        return "busy"
    locks[name] = lock
    return "held"


def main():
    client, locks, orders = redis.Redis.from_url(sys.argv[1]), {}, queue.Queue()
    client.ping()
    threading.Thread(target=read, args=[orders], daemon=True).start()
    print("ready", flush=True)
    while (order := orders.get()) != ["quit"]:
        try:
            answer = obey(client, locks, order)
        except Exception as error:
            answer = "error " + repr(error).replace("\n", " ")
        print(answer, flush=True)


main()
