"""
Sends random push jobs through tidemark-worker while providers fail and the worker is killed, and keeps an account.

usage: push_jobs.py SPECIFICATION.json

Everybody who lacked a message is sent it, nobody who had read it is, and each delivery is recorded once. With `queue`
in the specification the jobs go through POST /v1/push/jobs, and two workers share them. The last line is `ok N`, the
number of pushes that reached a device, or the first violation.
"""
import collections, json, os, random, signal, ssl, subprocess, sys, threading, time, urllib.request

import httpx

start = time.monotonic()
spec = json.load(open(sys.argv[1]))
choose = random.Random(spec["seed"])
headers = {"authorization": "Bearer " + spec["server"]}
gateway = httpx.Client(http1=False, http2=True, base_url=spec["gateway"], headers=headers, timeout=30)
trusted = ssl.create_default_context(cafile=spec["sandbox_ca"])


def ask(method, path, body=None):
    answer = gateway.request(method, path, json=body)
    answer.raise_for_status()
    return answer.json()


def sandbox(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(spec["sandbox"] + path, data, method=method)
    with urllib.request.urlopen(request, context=trusted, timeout=60) as answer:
        return json.load(answer)


# Channels, messages, and who has read or received what: the account of watermarks, by channel and user.
users = [f"user-{number}" for number in range(40)]
read, delivered = collections.defaultdict(int), collections.defaultdict(int)
messages = []
ask("PUT", "/v1/feed/consumers/account", {"from": "earliest", "types": ["delivered"]})
for number in range(16):
    cid = f"messaging:push-{number}"
    members = choose.sample(users, 20)
    ask("PUT", f"/v1/channels/{cid}", {"members": members})
    # Half of the channels have one message, so that no other push can deliver it.
    for seq in range(1, 2 if number % 2 else 7):
        sender, message = choose.choice(members), f"m{number}-{seq}"
        ask("POST", f"/v1/channels/{cid}/messages", {"id": message, "user_id": sender})
        messages.append((cid, message, seq, sender, members))
        read[cid, sender] = seq
        for member in choose.sample(members, 4):
            ask("POST", f"/v1/channels/{cid}/read", {"message_id": message, "user_id": member})
            read[cid, member] = seq
        for member in choose.sample(members, 3):
            entry = {"latest_delivered_messages": [{"cid": cid, "id": message}], "user_id": member}
            ask("POST", "/v1/channels/delivered", entry)
            delivered[cid, member] = seq

devices, owner = collections.defaultdict(list), {}
names = {"webpush": "web", "apns": "ios", "fcm": "android"}
for user in users:
    for kind in choose.sample(sorted(names), choose.randint(1, 2)):
        made = sandbox("POST", "/sandbox/devices", {"kind": kind})
        key = "subscription" if kind == "webpush" else "token"
        devices[user].append({"provider": names[kind], key: made[key]})
        owner[made["device"]] = user

jobs = {}
for cid, message, seq, sender, members in messages:
    jobs[message] = {
        "id": message, "cid": cid, "message_id": message, "title": "t", "body": "b" * choose.randint(0, 500),
        "users": [{"user_id": user, "devices": devices[user]} for user in members],
    }

# The worker, killed and started again with what was not answered.
order = choose.sample(sorted(jobs), len(jobs))
results, done = collections.defaultdict(dict), set()
faults = ["throttled", "expired", "unavailable", "internal_error", "hang", "close", "lost", "credentials", "too_large"]
sandbox("POST", "/sandbox/faults", {"rate": 0.3, "faults": faults, "seed": spec["seed"]})
sandbox("POST", "/sandbox/faults", {"fault": "gone", "kind": "fcm", "times": 2})


def take(answer):
    """Takes a result line of a job."""
    if answer.get("done"):
        # Jobs with devices that failed, or that the sandbox refused by its faults, are sent again.
        if not any(result in ("failed", "rejected") for result in results[answer["id"]].values()):
            done.add(answer["id"])
    else:
        address = answer.get("token") or answer["endpoint"]
        results[answer["id"]][answer["user_id"], address] = answer["result"]


def run(seconds):
    """Runs a worker with the open jobs, and kills it after a time; None: waits for its end."""
    worker = subprocess.Popen(spec["worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr)

    def feed():
        try:
            for job in [name for name in order if name not in done]:
                worker.stdin.write(json.dumps(jobs[job]).encode() + b"\n")
                worker.stdin.flush()
                if seconds is not None:
                    time.sleep(0.1)
            worker.stdin.write(b"{\n")
            worker.stdin.close()
        except OSError:
            pass

    threading.Thread(target=feed, daemon=True).start()
    if seconds is not None:
        threading.Timer(seconds, lambda: os.kill(worker.pid, signal.SIGKILL)).start()
    wrong = 0
    for line in worker.stdout:
        if not line.endswith(b"\n"):
            break
        answer = json.loads(line)
        if "id" not in answer:
            assert answer["code"] == "invalid_json" and answer["done"], answer
            wrong += 1
        else:
            take(answer)
    status = worker.wait()
    if seconds is None:
        assert status == 0 and wrong == 1, (status, wrong)


# Jobs of the queue that have no last line yet.
queued, lock = set(), threading.Lock()


def run_from_queue(seconds):
    """Queues the open jobs that are not queued, and runs a worker: kills it after a time, or stops it when it is done."""
    with lock:
        for job in [name for name in order if name not in done and name not in queued]:
            answer = ask("POST", "/v1/push/jobs", jobs[job])
            assert answer["users"] == len(jobs[job]["users"]), answer
            queued.add(job)
    if seconds is None and not queued:
        return
    worker = subprocess.Popen(spec["worker"] + ["--queue"], stdout=subprocess.PIPE, stderr=sys.stderr)
    if seconds is not None:
        end = signal.SIGKILL if choose.random() < 0.7 else signal.SIGTERM
        threading.Timer(seconds, lambda: os.kill(worker.pid, end)).start()
    stopping = False
    for line in worker.stdout:
        if not line.endswith(b"\n"):
            break
        answer = json.loads(line)
        assert "job_id" in answer, answer
        take(answer)
        if answer.get("done"):
            queued.discard(answer["id"])
        if seconds is None and not queued and not stopping:
            stopping = True
            os.kill(worker.pid, signal.SIGTERM)
    assert worker.wait() in ((0,) if seconds is None else (0, -signal.SIGKILL))


print(f"{time.monotonic() - start:.0f} s: {len(jobs)} jobs", flush=True)
deadline = time.monotonic() + spec["seconds"]
while time.monotonic() < deadline:
    if spec.get("queue"):
        pair = [threading.Thread(target=run_from_queue, args=(choose.uniform(0.5, 4),)) for _ in range(2)]
        for worker in pair:
            worker.start()
        for worker in pair:
            worker.join()
    else:
        run(choose.uniform(0.3, 3))
print(f"{time.monotonic() - start:.0f} s: {len(done)} jobs done, the faults end", flush=True)
sandbox("DELETE", "/sandbox/faults")
for _ in range(10):
    if len(done) < len(jobs):
        run_from_queue(None) if spec.get("queue") else run(None)


print(f"{time.monotonic() - start:.0f} s: {len(done)} jobs done", flush=True)


def fail(problem):
    print(f"seed {spec['seed']}: {problem}", flush=True)
    sys.exit(1)


def empty_queue(mayHaveJobs):
    """A worker may have been killed between a job's last line and its report. Then the queue is empty."""
    left = [job["id"] for job in ask("POST", "/v1/push/jobs/claim", {"limit": 1000})["jobs"]]
    if left and not mayHaveJobs:
        fail(f"left in the queue: {left}")
    assert ask("POST", "/v1/push/jobs/renew", {"ids": left, "lease_seconds": 10}) == {"unknown": []}
    assert ask("POST", "/v1/push/jobs/done", {"ids": left}) == {"unknown": []}
    assert ask("POST", "/v1/push/jobs/done", {"ids": left}) == {"unknown": left}
    assert ask("POST", "/v1/push/jobs/claim", {"limit": 1000}) == {"jobs": [], "more": False}


def delivered_by_device(message):
    counts = collections.Counter()
    for delivery in sandbox("GET", "/sandbox/deliveries")["deliveries"]:
        payload = delivery["payload"].get("message", {}).get("data") or delivery["payload"]
        if payload["message_id"] == message:
            counts[delivery["device"]] += 1
    return counts


def share_without_faults():
    """Two workers share jobs, and are stopped: each device gets each push once, and the queue is empty at once."""
    ask("PUT", "/v1/channels/messaging:push-shared", {"members": users})
    pair = [
        subprocess.Popen(spec["worker"] + ["--queue"], stdout=subprocess.PIPE, stderr=sys.stderr) for _ in range(2)]
    for number in range(40):
        message = {"id": f"shared-{number}"}
        ask("POST", "/v1/channels/messaging:push-shared/messages", message)
        job = {"cid": "messaging:push-shared", "message_id": message["id"], "id": message["id"], "title": "t"}
        entries = [{"user_id": user, "devices": devices[user]} for user in users]
        ask("POST", "/v1/push/jobs", {**job, "users": entries})
    ended = set()
    lines = [threading.Thread(target=lambda worker: ended.update(
        json.loads(line)["id"] for line in worker.stdout if json.loads(line).get("done")), args=(worker,))
        for worker in pair]
    for thread in lines:
        thread.start()
    until = time.monotonic() + 120
    while len(ended) < 40 and time.monotonic() < until:
        time.sleep(0.1)
    for worker in pair:
        os.kill(worker.pid, signal.SIGTERM)
    for thread in lines:
        thread.join()
    assert [worker.wait() for worker in pair] == [0, 0]
    if len(ended) < 40:
        fail(f"shared jobs done: {sorted(ended)}")
    empty_queue(False)
    last = delivered_by_device("shared-39")
    if set(last.values()) - {1}:
        fail(f"the last push came more than once: {last}")


if spec.get("queue"):
    time.sleep(11)
    empty_queue(True)
    share_without_faults()
if len(done) < len(jobs):
    left = {job: [result for result in results[job].items() if result[1] != "accepted"] for job in set(jobs) - done}
    fail(f"not done: {left}")
pushed, total = set(), 0
for delivery in sandbox("GET", "/sandbox/deliveries")["deliveries"]:
    payload = delivery["payload"].get("message", {}).get("data") or delivery["payload"]
    pushed.add((payload["message_id"], owner[delivery["device"]]))
    total += 1
lengths = collections.Counter(cid for cid, *_ in messages)
gone = {user for answers in results.values() for (user, _), result in answers.items() if result == "gone"}
for cid, message, seq, sender, members in messages:
    for member in members:
        had = max(read[cid, member], delivered[cid, member]) >= seq
        if (had or member == sender) and (message, member) in pushed:
            fail(f"{member} had {message} and was sent it")
        if had or member == sender or member in gone:
            continue
        outcomes = [result for (user, _), result in results[message].items() if user == member]
        if (message, member) not in pushed and "skipped" not in outcomes:
            fail(f"{member} lacked {message} and was not sent it: {outcomes}")
        if lengths[cid] == 1 and (message, member) not in pushed:
            fail(f"{member} lacked {message}, the only one of {cid}, and was not sent it: {outcomes}")

# Devices post their tickets a moment after the push.
until = time.monotonic() + 60
missing = None
while missing != [] and time.monotonic() < until:
    missing = []
    for cid, message, seq, sender, members in messages:
        statuses = ask("GET", f"/v1/channels/{cid}/messages/{message}/members?user_ids={','.join(members)}")
        for member, answer in zip(members, statuses["members"]):
            if (message, member) in pushed and answer.get("status") == "sent":
                missing.append((message, member))
if missing:
    fail(f"pushed and not delivered: {missing}")

# Each message is recorded as delivered to a user once.
seen = set()
with gateway.stream("GET", "/v1/feed?consumer=account&partition=0/1") as stream:
    for line in stream.iter_lines():
        record = json.loads(line)
        if record["type"] == "heartbeat":
            break
        if record["type"] == "delivered":
            key = record["cid"], record["user"]["id"], record["seq"]
            if key in seen:
                fail(f"recorded twice: {key}")
            seen.add(key)
print(f"ok {total}", flush=True)
os._exit(0)
