"""Changes channels over two gateways, keeps an account of what was acknowledged, and reads the feed beside it with
readers that are killed at random (feed_reader.py). In the end each acknowledged change must be in what was read, in the
order of its channel, also of a channel that was deleted before it was read. Reminders must be there once, and name
exactly those who have not read (R22); acknowledgement requests that expire must be there once (R9).

feed_account.py FILE: a JSON object with `gateways` (h2c ports), `server` (token), `seed`, `seconds`, `directory`.
Asks on standard output for programs to be killed and started (`kill store`, `start store`, `kill gateway 1`), and
waits for a line on standard input each time. The last line is `ok N`, or what is missing."""
import asyncio, json, os, random, subprocess, sys, time
import httpx

specification = json.load(open(sys.argv[1]))
ports, seconds = specification["gateways"], specification["seconds"]
choose = random.Random(specification["seed"])
PARTITIONS = 3
USERS = [f"user-{number}" for number in range(4)]
headers = {"authorization": f"Bearer {specification['server']}"}
deadline = time.monotonic() + seconds
# By channel, in order: (type, key) of each acknowledged change.
account = {}
# By message: who is to be named, or none; only what is certain, because it happened long enough before.
reminders, expiries = {}, {}
DUE_SECONDS = 3
tally = {"changes": 0, "deletions": 0, "reminders": 0, "expiries": 0}
tally |= {"readers killed": 0, "stores killed": 0, "gateways killed": 0}


async def ask(clients, method, path, body=None):
    """Repeats a request until a gateway answers it finally."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        client = choose.choice(clients)
        try:
            answer = await client.request(method, path, json=body)
        except httpx.HTTPError:
            await asyncio.sleep(0.1)
            continue
        if answer.status_code < 500:
            return answer
        await asyncio.sleep(0.1)
    raise SystemExit(f"{method} {path} was not answered for two minutes")


async def write(clients, number):
    """One channel after the other, each of which is deleted after some messages."""
    for count in range(10_000):
        if time.monotonic() > deadline:
            return
        await write_channel(clients, f"messaging:feed-{number}-{count}", choose.randint(5, 60))


async def write_channel(clients, cid, messages):
    """One channel: its changes are made one after the other, so their order is known."""
    changes = account.setdefault(cid, [])

    def note(kind, key):
        changes.append((kind, key))
        tally["changes"] += 1

    await ask(clients, "PUT", f"/v1/channels/{cid}", {"members": USERS})
    note("channel.created", cid)
    for user in USERS:
        note("member.added", user)
    sequence, reads, muted = 0, {}, set()
    while sequence < messages and time.monotonic() < deadline:
        sequence += 1
        answer = await ask(
            clients, "POST", f"/v1/channels/{cid}/messages", {"id": f"m{sequence}", "user_id": USERS[0]}
        )
        assert answer.status_code in (200, 201), answer.text
        note("message.registered", f"m{sequence}")
        for user in USERS[1:]:
            act = choose.random()
            if act < 0.5:
                answer = await ask(clients, "POST", f"/v1/channels/{cid}/read", {"user_id": user})
                assert answer.status_code == 200, answer.text
                if reads.get(user) != sequence:
                    note("read", (user, sequence))
                reads[user] = sequence
            elif act < 0.6 and reads.get(user):
                answer = await ask(
                    clients, "POST", f"/v1/channels/{cid}/unread", {"user_id": user, "message_id": f"m{reads[user]}"}
                )
                assert answer.status_code == 200, answer.text
                # A repeated request may mark unread what is unread already, which tells nothing.
                if user not in muted:
                    note("marked_unread", user)
                reads[user] = reads[user]
                muted.add(user)
                answer = await ask(clients, "POST", f"/v1/channels/{cid}/read", {"user_id": user})
                if reads.get(user) != sequence:
                    note("read", (user, sequence))
                reads[user] = sequence
                muted.discard(user)
    if sequence == messages:
        answer = await ask(clients, "DELETE", f"/v1/channels/{cid}")
        # 404: a gateway or the store was killed, and the request was repeated.
        assert answer.status_code in (200, 404), answer.text
        note("channel.deleted", cid)
        tally["deletions"] += 1
    note("end", None)


async def remind(clients, number):
    """Channels of one message each: some read or acknowledge it, or it is deleted, before its reminder is due."""
    for count in range(10_000):
        if time.monotonic() > deadline:
            return
        cid, message = f"remind:{number}-{count}", f"remind-{number}-{count}"
        await ask(clients, "PUT", f"/v1/channels/{cid}", {"members": USERS})
        begin = time.monotonic()
        body = {"id": message, "user_id": USERS[0], "receipt": True}
        body["reminders"] = [{"after": DUE_SECONDS, "when": "unread"}]
        answer = await ask(clients, "POST", f"/v1/channels/{cid}/messages", body)
        assert answer.status_code in (200, 201), answer.text
        waiting = {user for user in USERS[1:] if choose.random() < 0.5}
        for user in set(USERS[1:]) - waiting:
            answer = await ask(clients, "POST", f"/v1/channels/{cid}/read", {"user_id": user})
            assert answer.status_code == 200, answer.text
            body = {"message_ids": [message], "user_id": user}
            answer = await ask(clients, "POST", f"/v1/channels/{cid}/receipts", body)
            assert answer.status_code == 200, answer.text
        if choose.random() < 0.2:
            answer = await ask(clients, "DELETE", f"/v1/channels/{cid}/messages/{message}")
            assert answer.status_code == 200, answer.text
            waiting = set()
        if time.monotonic() - begin < DUE_SECONDS:
            reminders[message] = waiting
            tally["reminders"] += 1 if waiting else 0
            expiries[message] = 1 if waiting else 0
            tally["expiries"] += expiries[message]
        await asyncio.sleep(choose.uniform(0, 0.3))


class Reader:
    def __init__(self, partition):
        self.partition = f"{partition}/{PARTITIONS}"
        self.file = os.path.join(specification["directory"], f"feed-{partition}.ndjson")
        self.start()

    def start(self):
        program = os.path.join(os.path.dirname(__file__), "feed_reader.py")
        arguments = [self.file, specification["server"], "account", self.partition, *map(str, ports)]
        self.process = subprocess.Popen([sys.executable, program, *arguments])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def records(self):
        """What was read whole: a killed reader may leave half a line, which it read again."""
        if not os.path.exists(self.file):
            return []
        found = []
        for line in open(self.file, errors="replace"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def perform(request):
    print(request, flush=True)
    if sys.stdin.readline().strip() != "done":
        raise SystemExit("the test has ended")


async def disturb(readers):
    while time.monotonic() < deadline - 2:
        await asyncio.sleep(choose.uniform(0.5, 2))
        act = choose.random()
        if act < 0.5:
            reader = choose.choice(readers)
            reader.kill()
            await asyncio.sleep(choose.uniform(0, 0.5))
            reader.start()
            tally["readers killed"] += 1
        elif act < 0.75:
            await asyncio.to_thread(perform, "kill store")
            await asyncio.to_thread(perform, "start store")
            tally["stores killed"] += 1
        else:
            number = choose.randrange(len(ports))
            await asyncio.to_thread(perform, f"kill gateway {number}")
            await asyncio.to_thread(perform, f"start gateway {number}")
            tally["gateways killed"] += 1


def key(record):
    kind = record["type"]
    if kind in ("channel.created", "channel.deleted"):
        return record["cid"]
    if kind == "message.registered":
        return record["message_id"]
    if kind == "read":
        return (record["user"]["id"], record["seq"])
    return record["user"]["id"] if "user" in record else None


def check(readers, without=None):
    """Returns what is wrong with what was read; none: nothing. `without`: a type of records that counts as not read."""
    told, reminded, expired = {}, {}, {}
    for reader in readers:
        seen, highest = set(), {}
        for record in reader.records():
            if record["type"] == "gap":
                return f"a gap: {record}"
            if "id" not in record or record["id"] in seen:
                continue
            seen.add(record["id"])
            shard, number, _ = record["id"].split(".")
            if int(number) <= highest.get(shard, 0):
                return f"record {record['id']} came after record {highest[shard]} of its shard"
            highest[shard] = int(number)
            if record["type"] == without:
                continue
            if record["type"] == "reminder.due":
                reminded.setdefault(record["message_id"], []).append({user["id"] for user in record["users"]})
            if record["type"] == "receipt.expired" and "message_id" in record:
                expired[record["message_id"]] = expired.get(record["message_id"], 0) + 1
            if "cid" in record:
                told.setdefault(record["cid"], []).append((record["type"], key(record)))
    for message, users in reminders.items():
        if reminded.get(message, []) != ([users] if users else []):
            return f"{message}: of {users}, not {reminded.get(message)}"
        if expired.get(message, 0) != expiries[message]:
            return f"{message}: expired {expired.get(message, 0)} times"
    for cid, changes in account.items():
        records, at = told.get(cid, []), 0
        for change in changes[:-1]:
            while at < len(records) and records[at] != change:
                at += 1
            if at == len(records):
                place = records.index(change) if change in records else None
                return f"{cid}: {change} is not told in its order: it is record {place} of {len(records)}"
            at += 1
    return None


async def main():
    limits = httpx.Limits(max_connections=4)
    clients = [
        httpx.AsyncClient(
            http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30, limits=limits
        )
        for port in ports
    ]
    answer = await ask(clients, "PUT", "/v1/feed/consumers/account", {"from": "earliest"})
    assert answer.status_code in (200, 201), answer.text
    answer = await ask(clients, "PUT", "/v1/channel-types/remind", {"receipt_ttl": DUE_SECONDS})
    assert answer.status_code == 200, answer.text
    readers = [Reader(partition) for partition in range(PARTITIONS)]
    try:
        writers = [write(clients, number) for number in range(8)] + [remind(clients, number) for number in range(3)]
        await asyncio.gather(disturb(readers), *writers)
        end, wrong = time.monotonic() + 120, "nothing was read"
        while time.monotonic() < end:
            wrong = check(readers)
            if wrong is None:
                break
            await asyncio.sleep(0.5)
    finally:
        for reader in readers:
            reader.kill()
    # The control: what is not read is missed.
    if wrong is None:
        kinds = {kind for changes in account.values() for kind, _ in changes} - {"end"}
        for kind in sorted(kinds | {"reminder.due", "receipt.expired"}):
            if check(readers, without=kind) is None:
                wrong = f"the records of type {kind} are not missed"
    if wrong is None and tally["deletions"] == 0:
        wrong = "no channel was deleted"
    print("tally " + json.dumps(tally), flush=True)
    print(f"ok {tally['changes']}" if wrong is None else wrong, flush=True)


asyncio.run(main())
