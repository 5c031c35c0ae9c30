"""python-redis-lock, as a process of the scenario `others`; the last argument is the server's URL."""

import random
import sys
import threading
import time

import redis
import redis_lock

server = redis.Redis.from_url(sys.argv[-1])
answers = threading.Lock()


def pace(thread, name, millis, turn):
    lock = redis_lock.Lock(server, name, expire=30)
    end = time.monotonic_ns() + millis * 1_000_000
    waits = []
    while (begun := time.monotonic_ns()) < end:
        lock.acquire(blocking=True)
        waits.append(time.monotonic_ns() - begun)
        pause = random.randint(0, turn)
        if pause:
            time.sleep(pause / 1000)
        lock.release()
    with answers:
        print(thread, "waited", *(f"{wait}x1" for wait in waits), flush=True)


print("ready", flush=True)
for line in sys.stdin:
    thread, _, _, name, millis, turn = line.split()
    threading.Thread(target=pace, args=(thread, name, int(millis), int(turn)), daemon=True).start()
