"""An endpoint for webhooks that fails in several ways, beside a backend that changes channels, while workers are killed
and stopped. In the end each change must have been delivered, in the order of its channel.

webhook_account.py FILE: a JSON object with `gateway` (h2c port), `server` (token), `seed`, `seconds`, `port`, `secret`
(base64), `workers`. Asks on standard output for workers to be disturbed (`worker kill 1`, `stop`, `continue`, `start`),
and waits for a line on standard input each time. The last line is `ok N`, or what is missing."""
import base64, hashlib, hmac, http.server, json, random, sys, threading, time
import httpx

specification = json.load(open(sys.argv[1]))
choose = random.Random(specification["seed"])
deadline = time.monotonic() + specification["seconds"]
secret = base64.b64decode(specification["secret"])
lock = threading.Lock()
told, seen, highest, wrong = {}, set(), {}, []
tally = {"changes": 0, "requests": 0, "refused": 0, "hung": 0, "repeated": 0, "workers killed": 0, "workers stopped": 0}
bodies = {}
# How the endpoint answers now.
mode = "ok"


def key(record):
    kind = record["type"]
    if kind == "message.registered":
        return record["message_id"]
    if kind == "read":
        return (record["user"]["id"], record["seq"])
    return None


class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        name, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        mac = hmac.new(secret, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
        with lock:
            tally["requests"] += 1
            if "v1," + base64.b64encode(mac).decode() not in self.headers["webhook-signature"].split():
                wrong.append("a signature does not match")
            if bodies.setdefault(name, body) != body:
                wrong.append(f"{name} came with two bodies")
            answer = mode
            if answer == "ok":
                self.take(json.loads(body))
            else:
                tally["hung" if answer == "hang" else "refused"] += 1
        if answer == "hang":
            time.sleep(3)
        status = {"ok": 204, "hang": 200}.get(answer) or int(answer)
        # An answer after the worker's time limit counts for nothing.
        self.send_response(500 if answer == "hang" else status)
        self.send_header("content-length", "0")
        self.end_headers()

    def take(self, body):
        for record in body["records"]:
            if record["id"] in seen:
                tally["repeated"] += 1
                continue
            seen.add(record["id"])
            shard, number, _ = record["id"].split(".")
            if int(number) <= highest.get(shard, 0):
                wrong.append(f"record {record['id']} came after record {highest[shard]} of its shard")
            highest[shard] = int(number)
            told.setdefault(record.get("cid"), []).append((record["type"], key(record)))


def change(account):
    headers = {"authorization": f"Bearer {specification['server']}"}
    base = f"http://127.0.0.1:{specification['gateway']}"
    with httpx.Client(http1=False, http2=True, base_url=base, headers=headers, timeout=30) as client:
        for number in range(6):
            members = {"members": ["ann", "bob", "cid"]}
            assert client.put(f"/v1/channels/messaging:hook-{number}", json=members).status_code == 201
            account[f"messaging:hook-{number}"] = []
        sequence = 0
        while time.monotonic() < deadline:
            sequence += 1
            for cid, changes in account.items():
                body = {"id": f"m{sequence}", "user_id": "ann"}
                assert client.post(f"/v1/channels/{cid}/messages", json=body).status_code == 201
                changes.append(("message.registered", f"m{sequence}"))
                user = choose.choice(["bob", "cid"])
                assert client.post(f"/v1/channels/{cid}/read", json={"user_id": user}).status_code == 200
                changes.append(("read", (user, sequence)))
                tally["changes"] += 2
            time.sleep(0.01)


def perform(request):
    print(request, flush=True)
    if sys.stdin.readline().strip() != "done":
        raise SystemExit("the test has ended")


def disturb():
    global mode
    acts = []
    while time.monotonic() < deadline:
        time.sleep(choose.uniform(0.5, 1.5))
        # Each kind of disturbance comes as often as the others.
        acts = acts or choose.sample(["endpoint", "kill", "stop"], 3)
        act, worker = acts.pop(), choose.randrange(specification["workers"])
        if act == "endpoint":
            mode = choose.choice(["500", "503", "301", "hang"])
            # Short: pauses between attempts double.
            time.sleep(choose.uniform(0.2, 0.8))
            mode = "ok"
        elif act == "kill":
            perform(f"worker kill {worker}")
            time.sleep(choose.uniform(0, 2))
            perform(f"worker start {worker}")
            tally["workers killed"] += 1
        else:
            perform(f"worker stop {worker}")
            time.sleep(choose.uniform(1, 10))
            perform(f"worker continue {worker}")
            tally["workers stopped"] += 1


def missing(account):
    with lock:
        if wrong:
            return wrong[0]
        for cid, changes in account.items():
            records, at = told.get(cid, []), 0
            for expected in changes:
                while at < len(records) and records[at] != expected:
                    at += 1
                if at == len(records):
                    return f"{cid}: {expected} was not delivered in its order"
                at += 1
    return None


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", specification["port"]), Endpoint)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for number in range(specification["workers"]):
        perform(f"worker start {number}")
    account = {}
    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    change(account)
    disturbing.join()
    end, fault = time.monotonic() + 180, "nothing was delivered"
    while time.monotonic() < end and not wrong:
        fault = missing(account)
        if fault is None:
            break
        time.sleep(0.5)
    fault = wrong[0] if wrong else fault
    # The control: a change that was not delivered is missed.
    if fault is None:
        account["messaging:hook-0"].append(("read", ("bob", 0)))
        if missing(account) is None:
            fault = "a missing change is not noticed"
    print("tally " + json.dumps(tally), flush=True)
    print(f"ok {tally['changes']}" if fault is None else fault, flush=True)


main()
