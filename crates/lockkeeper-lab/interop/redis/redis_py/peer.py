"""Takes locks with redis-py on command; see the module `interop` of the lab for the commands."""

import os
import queue
import sys
import threading
import time

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
    if verb == "holds":
        # `owned` asks the server; there is no word of its own.
        return "asks" if name in locks else "lost"
    if verb == "turns":
        return many_turns(client, name, int(order[2]), int(order[3]), order[4:] == ["own"])
    if verb == "wait":
        return wait(client, name, int(order[2]))
    if verb == "bench":
        begin = time.monotonic()
        for _ in range(int(order[2])):
            with client.lock(name, timeout=30, thread_local=False):
                pass
        return f"took {time.monotonic() - begin}"
    # A ttl of zero: none at all, which is what redis-py does unless told otherwise.
    ttl = int(order[2]) / 1000 or None
    lock = client.lock(name, timeout=ttl, sleep=0.02, thread_local=False)
    if not lock.acquire(blocking=verb == "lock"):
        return "busy"
    locks[name] = lock
    return "held"


# How long one who waits goes on after the time is over, in seconds.
GRACE = 2.0


def take_turns(client, name, end, turns):
    while time.monotonic() < end:
        lock, asked = client.lock(name, timeout=30, thread_local=False), now()
        if not lock.acquire(blocking_timeout=end + GRACE - time.monotonic()):
            return
        held = releasing = now()
        lock.release()
        turns.append(f"{asked},{held},{releasing},{now()}")


def now():
    return time.monotonic_ns() // 1000


def many_turns(client, name, tasks, millis, own):
    end, turns = time.monotonic() + millis / 1000, []
    names = [f"{name}/{task}" if own else name for task in range(tasks)]
    threads = [
        threading.Thread(target=take_turns, args=[client, name, end, turns], daemon=True)
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return " ".join(["turns", *turns])


def wait(client, name, count):
    for _ in range(count):
        lock = client.lock(name, timeout=30, thread_local=False)
        threading.Thread(target=lock.acquire, daemon=True).start()
    return "waiting"


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
