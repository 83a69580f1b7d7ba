import time, threading, os
from pathlib import Path
from evopolicygym.execution.pool import WorkerPool
from .arena import *
from .test_hostile_policies import _FRAMES
def test_thief(directory):
    body = """
    os.sched_setaffinity(0, range(os.cpu_count()))
    thief = os.open(f"/proc/self/fd/{WRITE}", os.O_RDONLY | os.O_NONBLOCK)
    mine = os.dup(WRITE)
    os.write(WRITE, b'12345')
    time.sleep(0.05)
    end = time.monotonic() + 60
    n = 0
    lost = 0
    while time.monotonic() < end:
        os.write(mine, b"x")
        for _ in range(n % 50): pass
        n += 1
        try:
            os.read(thief, 1)
        except BlockingIOError:
            lost += 1
            if lost > 60: time.sleep(60)
    """
    with WorkerPool(execution(), jobs=1, directory=directory) as pool:
        arena = Arena(pool, directory)
        res = []
        t = threading.Thread(target=lambda: res.append(arena.play(program(in_act(body, head=_FRAMES)), timeout=3.0)[0]), daemon=True)
        b=time.monotonic()
        t.start(); t.join(20)
        print("took", time.monotonic()-b, res)
        if not res:
            for p in processes(directory):
                print(p.pid, open(f"/proc/{p.pid}/wchan").read(), open(f"/proc/{p.pid}/syscall").read())
        assert res
