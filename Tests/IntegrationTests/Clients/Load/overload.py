"""Sends more requests than the store can take, and reports the answers.

usage: overload.py GATEWAY_PORT SPEC_JSON          SPEC_JSON as for marks_under_load.py

On standard input:
`flood N`   sends N requests that each mark 100 messages delivered, without waiting for answers; prints `sent`
`probe N`   sends N marks, then one every 20 ms until those are answered; prints all their answers as JSON
`drain`     waits until every request is answered; prints the answers to the floods' requests
`end`       ends

The JSON: {"answers": {"<status> <code>": n}, "bare": answers 503 without Retry-After, "longest":
seconds to the slowest answer, "unanswered": n}. A request without an answer after 60 s counts as unanswered.
"""
import json, select, sys, time
from h2_connection import Connection

port, spec = int(sys.argv[1]), json.load(open(sys.argv[2]))
user, token = sorted(spec["users"].items())[0]
# Bodies must fit the connection's window, which is not refilled while the store is down.
REQUESTS = 250
GIVE_UP = 60
floods, sent_floods = [], 0
prober = Connection(port, token)


class Tally:
    def __init__(self):
        self.answers, self.bare, self.longest, self.unanswered = {}, 0, 0.0, 0

    def add(self, name):
        self.answers[name] = self.answers.get(name, 0) + 1

    def take(self, connection):
        for sent, headers, body in connection.receive():
            self.longest = max(self.longest, time.time() - sent)
            status, document = headers.get(":status", "?"), json.loads(body or b"{}")
            if status == "503" and "retry-after" not in headers:
                self.bare += 1
            if "results" in document:
                for entry in document["results"]:
                    self.add("entry " + entry.get("code", "ok"))
            self.add((status + " " + document.get("code", "")).strip())

    def __str__(self):
        return json.dumps(vars(self))


flooded = Tally()


def flood(count):
    global sent_floods
    for _ in range(count):
        if sent_floods % REQUESTS == 0:
            floods.append(Connection(port, token))
        message = sent_floods % spec["messages"] + 1
        entries = [{"cid": cid, "id": f"m{message}"} for cid in spec["channels"]] * (100 // len(spec["channels"]))
        body = json.dumps({"latest_delivered_messages": entries}).encode()
        floods[-1].send("POST", "/v1/channels/delivered", time.time(), body)
        floods[-1].flush()
        # The first token raises the connection's window and stream limit above HTTP/2's initial values.
        while sent_floods % REQUESTS == 0 and floods[-1].h2.outbound_flow_control_window < 1 << 20:
            flooded.take(floods[-1])
        sent_floods += 1


def probe(count):
    tally = Tally()

    def send(n):
        cid = spec["channels"][n % len(spec["channels"])]
        prober.send("POST", f"/v1/channels/{cid}/read?message_id=m1", time.time())

    for n in range(count):
        send(n)
    prober.flush()
    first = time.time()
    oldest = set(prober.waiting)
    while oldest & set(prober.waiting) and time.time() < first + GIVE_UP:
        if select.select([prober.socket], [], [], 0.02)[0]:
            tally.take(prober)
        elif len(prober.waiting) < 900:
            send(0)
            prober.flush()
    while prober.waiting and time.time() < first + GIVE_UP:
        if select.select([prober.socket], [], [], 1)[0]:
            tally.take(prober)
    tally.unanswered = len(prober.waiting)
    return tally


def drain():
    deadline = time.time() + GIVE_UP
    while any(connection.waiting for connection in floods) and time.time() < deadline:
        sockets = [connection.socket for connection in floods if connection.waiting]
        readable = select.select(sockets, [], [], 1)[0]
        for connection in floods:
            if connection.socket in readable:
                flooded.take(connection)
    flooded.unanswered = sum(len(connection.waiting) for connection in floods)
    return flooded


for line in sys.stdin:
    words = line.split()
    if words[:1] == ["flood"]:
        flood(int(words[1]))
        print("sent", flush=True)
    elif words[:1] == ["probe"]:
        print(probe(int(words[1])), flush=True)
    elif words == ["drain"]:
        print(drain(), flush=True)
    else:
        break
