"""A ring all-reduce over plain sockets: what each pod of the demo's distributed job runs, handed to
`python3 -c`.

The pods find each other only by the names that the svc plugin gives them.  Each starts with its own
vector, passes partial sums round the ring, and exits 0 only if the vector that it ends with is the
sum over all pods.
"""

import os
import socket
import struct
import time

PORT = 29500
LENGTH = 1000

hosts = os.environ["VC_WORKER_HOSTS"].split(",")
rank, size = int(os.environ["VC_TASK_INDEX"]), len(hosts)


def listen() -> socket.socket:
    """A server on this pod's own address, which its own name resolves to."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((socket.gethostbyname(hosts[rank]), PORT))
    server.listen()
    return server


def connect(host: str) -> socket.socket:
    """A connection to the next pod of the ring, which may not have started yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection((socket.gethostbyname(host), PORT), timeout=60)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(connection: socket.socket) -> tuple[float, ...]:
    """One vector from the pod before this one."""
    need, parts = 8 * LENGTH, []
    while need:
        part = connection.recv(need)
        if not part:
            raise EOFError("the pod before this one has gone")
        parts.append(part)
        need -= len(part)
    return struct.unpack(f"{LENGTH}d", b"".join(parts))


server = listen()
after = connect(hosts[(rank + 1) % size])
before, _ = server.accept()
mine: list[float] = [float((rank + 1) * i) for i in range(LENGTH)]
total = mine
travelling: tuple[float, ...] = tuple(mine)
for _ in range(size - 1):
    after.sendall(struct.pack(f"{LENGTH}d", *travelling))
    travelling = receive(before)
    total = [a + b for a, b in zip(total, travelling)]
expected = [float(size * (size + 1) // 2 * i) for i in range(LENGTH)]
print(
    f"rank {rank} of {size}: sum of element 999 is {total[999]:.0f}, expected {expected[999]:.0f}",
    flush=True,
)
raise SystemExit(0 if total == expected else 1)
