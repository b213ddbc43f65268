"""Opens more connections to a load balancer than one address may have, and keeps them while others are tried.

usage: many_connections.py PORT COUNT CLOSED

The connections come from 127.0.0.66. Waits until CLOSED of them are closed, at most 60 s, and a second longer for those
that are not to be closed. Then prints `open N closed M`, and ends when standard input does.
"""

import select, socket, sys, time

LIMIT = 60
port, count, expected = (int(argument) for argument in sys.argv[1:4])


def connect():
    """Returns an open connection, or None where it was reset before it was seen to be open."""
    try:
        return socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.66", 0), timeout=LIMIT)
    except ConnectionResetError:
        return None


opened = [made for made in (connect() for _ in range(count)) if made]
reset = count - len(opened)
closed, deadline = set(), time.monotonic() + LIMIT
while time.monotonic() < deadline:
    readable = select.select([made for made in opened if made not in closed], [], [], 1)[0]
    if not readable and reset + len(closed) >= expected:
        break
    for made in readable:
        try:
            ended = made.recv(1) == b""
        except OSError:
            ended = True
        if ended:
            closed.add(made)
print(f"open {len(opened) - len(closed)} closed {reset + len(closed)}", flush=True)
sys.stdin.read()
