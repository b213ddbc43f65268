"""Opens more connections to a load balancer than one address may have, and keeps them while others are tried.

usage: many_connections.py PORT COUNT

The connections come from 127.0.0.66. Prints `open N closed M` once each of them is known to be open or closed, and ends
when standard input does.
"""

import select, socket, sys, time

port, count = int(sys.argv[1]), int(sys.argv[2])
connections = [
    socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.66", 0), timeout=10) for _ in range(count)
]
closed, deadline = set(), time.monotonic() + 10
while time.monotonic() < deadline and len(closed) < count:
    readable = select.select([made for made in connections if made not in closed], [], [], 1)[0]
    if not readable:
        break
    for made in readable:
        try:
            ended = made.recv(1) == b""
        except OSError:
            ended = True
        if ended:
            closed.add(made)
print(f"open {count - len(closed)} closed {len(closed)}", flush=True)
sys.stdin.read()
