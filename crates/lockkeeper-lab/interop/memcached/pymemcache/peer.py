"""Takes locks with a plain `add` of pymemcache; see the module `interop` of the lab for the commands."""

import math
import os
import queue
import sys
import threading
import time
import uuid
from urllib.parse import urlsplit

from pymemcache.client.base import Client

# Between two tries of one who waits.
PAUSE = 0.02


def read(orders):
    """In a thread of its own: one who waits for a lock must still hear that the input ended."""
    for line in sys.stdin:
        orders.put(line.split())
    os._exit(0)


def obey(client, held, order):
    verb, name = order[0], order[1]
    if verb == "unlock":
        value = held.pop(name, None)
        # As careful as the plain commands allow: looked at first, and then deleted.
        if value is None or client.get(name) != value:
            return "not-held"
        return "unlocked" if client.delete(name, noreply=False) else "not-held"
    value = uuid.uuid4().hex.encode()
    seconds = math.ceil(int(order[2]) / 1000)
    while not client.add(name, value, expire=seconds, noreply=False):
        if verb == "try":
            return "busy"
        time.sleep(PAUSE)
    held[name] = value
    return "held"


def main():
    url = urlsplit(sys.argv[1])
    client, held, orders = Client((url.hostname, url.port)), {}, queue.Queue()
    threading.Thread(target=read, args=[orders], daemon=True).start()
    print("ready", flush=True)
    while (order := orders.get()) != ["quit"]:
        try:
            answer = obey(client, held, order)
        except Exception as error:
            answer = "error " + repr(error).replace("\n", " ")
        print(answer, flush=True)
    os._exit(0)


main()
