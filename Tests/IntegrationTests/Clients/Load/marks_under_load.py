"""Sends read marks over HTTP/2 as fast as the gateway allows, and records those that are acknowledged.

usage: marks_under_load.py GATEWAY_PORT SPEC_JSON
SPEC_JSON: {"server": token, "users": {user: token}, "channels": [cid...], "messages": N}

Message ids are m1..mN. Commands on standard input:

- `check` stops sending, waits for pending answers, reads the state back and prints `ok ACKNOWLEDGED` or
`lost ...`, then resumes. `check PORT` reads through another gateway, without waiting for pending answers.
- `remember` copies the record of acknowledged marks, and prints `remembered ACKNOWLEDGED`.
- `recall PORT` reads through another gateway and compares the state with that copy.
- `forget` clears the record, and prints a confirmation.
- `hold` reads pending answers, sends nothing new, and prints `held ACKNOWLEDGED`; `go` resumes.
- `refusals` prints the number of answers other than 200, by status and code, and the longest response time.
- `end` ends.
"""
import json, select, sys, time
from h2_connection import Connection

port, spec = int(sys.argv[1]), json.load(open(sys.argv[2]))
STREAMS = 20
# After this silence all data of a stopped store has arrived.
QUIET = 0.5

acknowledged = {}
total = 0
users = [(user, Connection(port, token)) for user, token in spec["users"].items()]
next_mark = {user: 0 for user, _ in users}
refusals = {}
longest = 0.0


def mark(user, connection):
    n = next_mark[user]
    next_mark[user] += 1
    cid = spec["channels"][n % len(spec["channels"])]
    message = min(n // len(spec["channels"]) + 1, spec["messages"])
    connection.send("POST", f"/v1/channels/{cid}/read?message_id=m{message}", (cid, user, message, time.time()))


def take(connection):
    global total, longest
    for (cid, user, message, sent), headers, body in connection.receive():
        longest = max(longest, time.time() - sent)
        if headers.get(":status") == "200":
            total += 1
            acknowledged[cid, user] = max(acknowledged.get((cid, user), 0), message)
        else:
            name = headers.get(":status", "?") + " " + json.loads(body or b"{}").get("code", "?")
            refusals[name] = refusals.get(name, 0) + 1


def drain():
    deadline = time.time() + 30
    for _, connection in users:
        while connection.waiting and time.time() < deadline:
            if select.select([connection.socket], [], [], 1)[0]:
                take(connection)


def hold():
    while True:
        readable = select.select([connection.socket for _, connection in users], [], [], QUIET)[0]
        if not readable:
            return
        for _, connection in users:
            if connection.socket in readable:
                take(connection)


def check(at, acknowledged=acknowledged, total=None):
    server = Connection(at, spec["server"])
    for cid in spec["channels"]:
        server.send("GET", f"/v1/channels/{cid}/read-state", cid)
        server.flush()
        rows = None
        while server.waiting:
            for _, headers, body in server.receive():
                if headers.get(":status") != "200":
                    return f"lost: read-state answered {headers.get(':status')} {body.decode()}"
                rows = {row["user"]["id"]: row["last_read_seq"] for row in json.loads(body)["read"]}
        for user, _ in users:
            have, want = rows.get(user, 0), acknowledged.get((cid, user), 0)
            if have < want:
                return f"lost: {user} in {cid} was acknowledged {want}, the store has {have}"
    return f"ok {globals()['total'] if total is None else total}"


is_held = False
remembered = ({}, 0)
while True:
    for user, connection in users:
        while not is_held and len(connection.waiting) < STREAMS:
            mark(user, connection)
        connection.flush()
    sockets = [connection.socket for _, connection in users]
    readable = select.select(sockets + [sys.stdin], [], [], 1)[0]
    for _, connection in users:
        if connection.socket in readable:
            take(connection)
    if sys.stdin in readable:
        line = sys.stdin.readline().strip()
        if line == "check":
            drain()
            stuck = sum(len(connection.waiting) for _, connection in users)
            print(f"stuck: {stuck} requests have no answer" if stuck else check(port), flush=True)
        elif line.startswith("check "):
            print(check(int(line.split()[1])), flush=True)
        elif line == "remember":
            remembered = (dict(acknowledged), total)
            print(f"remembered {total}", flush=True)
        elif line == "forget":
            acknowledged.clear()
            total = 0
            print("forgotten", flush=True)
        elif line.startswith("recall "):
            print(check(int(line.split()[1]), *remembered), flush=True)
        elif line == "hold":
            hold()
            is_held = True
            print(f"held {total}", flush=True)
        elif line == "go":
            is_held = False
        elif line == "refusals":
            print(json.dumps({"refusals": refusals, "longest": longest}), flush=True)
        elif line in ("end", ""):
            break
