"""A data directory of an earlier build, and that build's answers.

usage: data_directory.py make BINARIES NAME     NAME.tar.gz and NAME.json beside this file, by the programs in BINARIES
       data_directory.py compare NAME PORT JWT_SECRET_FILE     queries a gateway on PORT over a copy of the directory

`make` writes every kind of page, step, thread, acknowledgement and tombstone, then a tail of the log that is
not in pages, and kills the store. The answers are those of the same build after its restart. `compare`
requires every value that the earlier build answered. It ignores fields that a later build adds, and the text
of problems.
"""
import base64, hashlib, hmac, json, os, shutil, signal, socket, subprocess, sys, tarfile, tempfile, time, urllib.request
import httpx

HERE = os.path.dirname(os.path.abspath(__file__))
HOOK_SECRET = "whsec_" + base64.b64encode(b"the hook of the fixture, 32 bytes").decode()
HOOKS = """hooks:
  relay:
    secrets: ["%s"]
"""


def token(secret, user):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims = {
        "iat": int(time.time()),
        "exp": int(time.time()) + 3600,
        **({"user_id": user} if user else {"server": True}),
    }
    text = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
    return (text + b"." + part(hmac.new(secret, text, hashlib.sha256).digest())).decode()


class Caller:
    def __init__(self, port, secret_file):
        self.secret = open(secret_file, "rb").readline().rstrip(b"\n")
        self.client = httpx.Client(http1=False, http2=True, base_url=f"http://127.0.0.1:{port}", timeout=20)
        self.tokens = {}

    def call(self, user, method, path, body=None):
        if user not in self.tokens:
            self.tokens[user] = token(self.secret, user)
        answer = self.client.request(method, path, headers={"authorization": "Bearer " + self.tokens[user]}, json=body)
        document = answer.json() if answer.content else {}
        document.pop("request_id", None)
        return answer.status_code, document

    def do(self, method, path, body=None, user=None, status=(200, 201)):
        got, document = self.call(user, method, path, body)
        assert got in status, (method, path, body, got, document)
        return document


class Programs:
    """A store and a gateway of BINARIES over `directory`/data."""

    def __init__(self, binaries, directory):
        self.binaries, self.directory, self.processes = binaries, directory, []
        for name in ("frame-secret", "jwt-secret", "ticket-secret"):
            path = f"{directory}/{name}"
            if not os.path.exists(path):
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
                open(path, "w").write(os.urandom(32).hex() + "\n")
        open(f"{directory}/hooks.yaml", "w").write(HOOKS % HOOK_SECRET)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
        self.store, self.store_admin, self.port, self.admin = [s.getsockname()[1] for s in sockets]
        for s in sockets:
            s.close()

    def start(self):
        d = self.directory
        store = [
            "--data",
            f"{d}/data",
            "--listen",
            f"127.0.0.1:{self.store}",
            "--secret-file",
            f"{d}/frame-secret",
            "--admin",
            f"127.0.0.1:{self.store_admin}",
        ]
        self.run("tidemark-store", store + ([] if os.path.exists(f"{d}/data") else ["--shards", "2"]), self.store_admin)
        self.run(
            "tidemark-gateway",
            [
                "--listen",
                f"127.0.0.1:{self.port}",
                "--h2c",
                "--store",
                f"127.0.0.1:{self.store}",
                "--secret-file",
                f"{d}/frame-secret",
                "--jwt-secret-file",
                f"{d}/jwt-secret",
                "--ticket-secret-file",
                f"{d}/ticket-secret",
                "--hooks-file",
                f"{d}/hooks.yaml",
                "--admin",
                f"127.0.0.1:{self.admin}",
            ],
            self.admin,
        )
        return Caller(self.port, f"{d}/jwt-secret")

    def run(self, name, arguments, admin):
        log = open(f"{self.directory}/{name}.log", "a")
        process = subprocess.Popen([f"{self.binaries}/{name}", *arguments], stdout=log, stderr=log)
        self.processes.append(process)
        for _ in range(300):
            try:
                if urllib.request.urlopen(f"http://127.0.0.1:{admin}/ready", timeout=2).status == 200:
                    return
            except OSError:
                pass
            assert process.poll() is None, open(log.name).read()
            time.sleep(0.1)
        raise SystemExit(f"{name} was not ready after 30 s")

    def end(self, how):
        for process in self.processes:
            process.send_signal(how)
        for process in self.processes:
            process.wait()
        self.processes = []


def members(first, last):
    return [f"m-{n:03}" for n in range(first, last)]


def pages(port):
    """Returns once every page is written: later log entries are the tail."""
    for _ in range(600):
        lines = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode().split("\n")
        if "tidemark_store_dirty_pages 0" in lines:
            return
        time.sleep(0.1)
    raise SystemExit("pages are not written after 60 s")


def history(c, programs):
    for name, options in {
        "hidden": {"history": "hidden"},
        "public": {"mark_unread": "public"},
        "off": {"mark_unread": "off"},
        "quiet": {"read_events": False},
        "undelivered": {"delivery_events": False},
        "sender": {"counts_visible_to": "sender"},
        "all": {"status_rule": "all"},
        "two": {"status_rule": 2},
        "half": {"status_rule": "50%"},
        "always": {"read_acks_receipts": "always"},
        "never": {"read_acks_receipts": "never"},
        "short": {"receipt_ttl": 1},
        "long": {"receipt_ttl": 1_000_000_000},
        "few": {"receipt_max_members": 1},
        "daily": {"receipt_daily_limit": 1},
        "roles": {"receipt_request_roles": ["admin", "owner"]},
        "steps": {"kept_steps": 4},
    }.items():
        c.do("PUT", f"/v1/channel-types/{name}", options)
        channel = f"/v1/channels/{name}:room"
        c.do("PUT", channel, {"members": ["alice", "bob", {"user_id": "carol", "role": "admin"}]})
        for n in (1, 2):
            c.do(
                "POST",
                channel + "/messages",
                {"id": f"old-{n}", "user_id": "alice", "receipt": True, "created_at": "2026-01-02T03:04:05.678Z"},
            )
        c.do("POST", channel + "/members", {"add": ["dave"]})
        c.do("POST", channel + "/messages", {"id": "new-1", "user_id": "alice"})
        c.do("POST", channel + "/messages", {"id": "new-2", "user_id": "bob", "silent": True})
        c.do("POST", channel + "/messages", {"id": "new-3"})
        c.do("POST", channel + "/read", {"message_id": "old-2"}, "bob")
        c.do(
            "POST",
            "/v1/channels/delivered",
            {"latest_delivered_messages": [{"cid": f"{name}:room", "id": "new-1"}]},
            "carol",
        )
        c.do("POST", channel + "/receipts", {"message_ids": ["old-1"], "note": "seen, carol"}, "carol")
        c.do("POST", channel + "/receipts", {"message_ids": ["old-1"], "note": "seen, bob"}, "bob")
        if name != "off":
            c.do("POST", channel + "/unread", {"message_id": "old-1"}, "bob")

    # Two pages of rows, two segments of messages.
    c.do("PUT", "/v1/channels/messaging:large", {"members": ["alice", *members(0, 300)]})
    c.do(
        "POST",
        "/v1/messages",
        {
            "messages": [
                {
                    "cid": "messaging:large",
                    "id": f"l-{n}",
                    "user_id": "alice" if n % 3 else f"m-{n % 300:03}",
                    "silent": n % 50 == 0,
                }
                for n in range(1, 301)
            ]
        },
    )
    for n in range(0, 300, 7):
        c.do("POST", "/v1/channels/messaging:large/read", {"message_id": f"l-{n + 1}"}, f"m-{n:03}")
    c.do("DELETE", "/v1/channels/messaging:large/messages/l-290")
    c.do("DELETE", "/v1/channels/messaging:large/messages/l-100")

    # More steps than a page's tail holds, and more than are kept.
    for cid, moves in (("messaging:steps", 300), ("steps:room", 120)):
        channel = f"/v1/channels/{cid}"
        c.do("PUT", channel, {"members": ["alice", "bob", "carol", "dave"]})
        c.do(
            "POST",
            "/v1/messages",
            {"messages": [{"cid": cid, "id": f"s-{n}", "user_id": "alice"} for n in range(moves)]},
        )
        for n in range(moves):
            c.do("POST", channel + "/read", {"message_id": f"s-{n}"}, "bob")
            c.do(
                "POST", "/v1/channels/delivered", {"latest_delivered_messages": [{"cid": cid, "id": f"s-{n}"}]}, "carol"
            )

    # Threads: in a channel of four, in a channel of two, and under a removed parent.
    for cid in ("messaging:steps", "messaging:pair"):
        channel = f"/v1/channels/{cid}"
        c.do("PUT", channel, {"members": ["alice", "bob"]})
        c.do("POST", channel + "/messages", {"id": "parent", "user_id": "alice"})
        for n in range(5):
            c.do(
                "POST",
                channel + "/messages",
                {"id": f"reply-{n}", "user_id": ("bob", "alice")[n % 2], "parent_id": "parent"},
            )
        c.do("POST", channel + "/read", {"thread_id": "parent", "message_id": "reply-3"}, "alice")
        c.do("POST", channel + "/read", {"thread_id": "parent", "message_id": "reply-2"}, "bob")
        c.do("DELETE", channel + "/messages/reply-1")
    c.do("POST", "/v1/channels/messaging:steps/read", {"thread_id": "parent", "message_id": "reply-4"}, "dave")
    c.do("POST", "/v1/channels/messaging:steps/unread", {"thread_id": "parent", "message_id": "reply-2"}, "alice")

    # Users who hide, and one who shows again.
    c.do("PUT", "/v1/users/hider", {"privacy_settings": {"read_receipts": {"enabled": False}}})
    c.do(
        "PUT",
        "/v1/users/shower",
        {"privacy_settings": {"read_receipts": {"enabled": False}, "delivery_receipts": {"enabled": False}}},
    )
    c.do("PUT", "/v1/users/revoked", {"revoke_tokens_before": "2026-01-01T00:00:00Z"})
    c.do("PUT", "/v1/channels/messaging:private", {"members": ["alice", "hider", "shower", "revoked"]})
    c.do(
        "POST",
        "/v1/messages",
        {"messages": [{"cid": "messaging:private", "id": f"p-{n}", "user_id": "alice"} for n in range(6)]},
    )
    for user in ("hider", "shower"):
        c.do("POST", "/v1/channels/messaging:private/read", {"message_id": "p-2"}, user)
        c.do(
            "POST",
            "/v1/push/acks",
            {
                "acks": [
                    {
                        "cid": "messaging:private",
                        "message_id": "p-4",
                        "user_id": user,
                        "acked_at": "2026-01-01T00:00:00Z",
                    }
                ]
            },
        )
    c.do(
        "PUT",
        "/v1/users/shower",
        {"privacy_settings": {"read_receipts": {"enabled": True}, "delivery_receipts": {"enabled": True}}},
    )
    time.sleep(0.05)
    c.do("POST", "/v1/channels/messaging:private/read", {"message_id": "p-3"}, "shower")

    # Push acks: with a time, by a ticket, by a webhook.
    time.sleep(0.05)
    c.do(
        "POST",
        "/v1/push/acks",
        {
            "acks": [
                {
                    "cid": "messaging:private",
                    "message_id": "p-3",
                    "user_id": "revoked",
                    "acked_at": "2026-01-01T00:00:00Z",
                }
            ]
        },
    )
    tickets = c.do("POST", "/v1/push/tickets", {"tickets": [
        {"cid": "messaging:private", "message_id": m, "user_id": "revoked"} for m in ("p-4", "p-5")]})["tickets"]
    c.do("POST", "/v1/push/acks", {"tickets": [tickets[0]]})
    hook(programs, tickets[1])

    # Members who left, returned, or were erased; a deleted, recreated, truncated channel.
    c.do(
        "PUT",
        "/v1/channels/messaging:changes",
        {"members": [{"user_id": "alice", "role": "owner"}, "bob", "carol", "dave", "gone"]},
    )
    c.do(
        "POST",
        "/v1/messages",
        {
            "messages": [
                {"cid": "messaging:changes", "id": f"c-{n}", "user_id": ("alice", "gone")[n % 2]} for n in range(8)
            ]
        },
    )
    c.do("POST", "/v1/channels/messaging:changes/members", {"remove": ["bob", "carol"]})
    c.do("POST", "/v1/channels/messaging:changes/members", {"add": ["bob", {"user_id": "dave", "role": "moderator"}]})
    c.do(
        "PUT",
        "/v1/channels/messaging:truncated",
        {"members": ["alice", "bob"], "options": {"status_rule": "all", "read_acks_receipts": "never"}},
    )
    c.do(
        "POST",
        "/v1/messages",
        {"messages": [{"cid": "messaging:truncated", "id": f"t-{n}", "user_id": "alice"} for n in range(6)]},
    )
    c.do("POST", "/v1/channels/messaging:truncated/truncate", {"before": "t-3"})
    for made in range(2):
        c.do("PUT", "/v1/channels/messaging:again", {"members": ["alice", "bob", "carol"][: 3 - made]})
        c.do("POST", "/v1/channels/messaging:again/messages", {"id": f"again-{made}", "user_id": "alice"})
        if not made:
            c.do("DELETE", "/v1/channels/messaging:again")
    c.do("PUT", "/v1/channels/messaging:deleted", {"members": ["alice", "bob", "carol"]})
    c.do("DELETE", "/v1/channels/messaging:deleted")
    time.sleep(1.1)  # The acknowledgement requests of `short` expire.
    subprocess.run(
        [
            f"{programs.binaries}/tidemark",
            "rebuild-index",
            "--store",
            f"127.0.0.1:{programs.store}",
            "--secret-file",
            f"{programs.directory}/frame-secret",
        ],
        check=True,
    )
    # An erasure writes every page and truncates the log.
    c.do("DELETE", "/v1/users/gone")


def tail(c):
    """Changes that only the log has: some of each kind, over older pages."""
    # First, because pages are written again after a second, and the log is truncated.
    c.do(
        "POST",
        "/v1/messages",
        {"messages": [{"cid": "steps:room", "id": f"tail-{n}", "user_id": "alice"} for n in range(100)]},
    )
    for n in range(100):
        c.do("POST", "/v1/channels/steps:room/read", {"message_id": f"tail-{n}"}, "bob")
    c.do("PUT", "/v1/channel-types/late", {"history": "hidden", "kept_steps": 0})
    c.do("PUT", "/v1/channels/late:room", {"members": ["alice", "bob"]})
    c.do("POST", "/v1/channels/late:room/messages", {"id": "late-1", "user_id": "alice", "receipt": True})
    c.do("POST", "/v1/channels/late:room/receipts", {"message_ids": ["late-1"], "note": "late"}, "bob")
    channel = "/v1/channels/messaging:steps"
    c.do("POST", channel + "/messages", {"id": "tail-1", "user_id": "alice"})
    c.do("POST", channel + "/messages", {"id": "tail-2", "user_id": "carol"})
    c.do("POST", channel + "/messages", {"id": "reply-5", "user_id": "carol", "parent_id": "parent"})
    c.do("POST", channel + "/read", {"message_id": "tail-1"}, "bob")
    c.do("POST", channel + "/read", {}, "dave")
    c.do("POST", channel + "/unread", {"message_id": "s-200"}, "dave")
    c.do("POST", channel + "/read", {"thread_id": "parent"}, "bob")
    c.do(
        "POST",
        "/v1/channels/delivered",
        {"latest_delivered_messages": [{"cid": "messaging:steps", "id": "tail-2"}]},
        "carol",
    )
    c.do("DELETE", channel + "/messages/s-250")
    c.do(
        "POST",
        "/v1/push/acks",
        {
            "acks": [
                {
                    "cid": "messaging:steps",
                    "message_id": "tail-2",
                    "user_id": "alice",
                    "acked_at": "2026-01-01T00:00:00Z",
                }
            ]
        },
    )
    c.do(
        "PUT",
        "/v1/channels/messaging:steps",
        {"members": [{"user_id": "bob", "role": "admin"}], "options": {"status_rule": "all"}},
    )
    c.do("POST", "/v1/channels/messaging:changes/members", {"add": ["late-comer"], "remove": ["dave"]})
    c.do("POST", "/v1/channels/messaging:pair/truncate", {})
    c.do("PUT", "/v1/users/hider", {"privacy_settings": {"delivery_receipts": {"enabled": False}}})
    c.do("POST", "/v1/channels/messaging:private/read", {"message_id": "p-5"}, "hider")
    for cid in ("few:room", "always:room"):
        c.do("POST", f"/v1/channels/{cid}/messages", {"id": "tail-1", "user_id": "alice", "receipt": True})
        for user in ("bob", "carol"):
            c.do("POST", f"/v1/channels/{cid}/receipts", {"message_ids": ["tail-1"]}, user)
        c.do("POST", f"/v1/channels/{cid}/read", {}, "dave")
    c.do("PUT", "/v1/channels/messaging:brief", {"members": ["alice", "bob", *members(0, 300)]})
    c.do("DELETE", "/v1/channels/messaging:brief")


def hook(programs, ticket):
    body = json.dumps({"type": "push.delivered", "data": {"ticket": ticket, "acked_at": "2026-01-01T00:00:00Z"}})
    at = str(int(time.time()))
    key = base64.b64decode(HOOK_SECRET.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.new(key, f"msg_1.{at}.{body}".encode(), hashlib.sha256).digest()).decode()
    client = httpx.Client(http1=False, http2=True, timeout=20)
    answer = client.post(
        f"http://127.0.0.1:{programs.port}/v1/push/hooks/relay",
        content=body,
        headers={
            "content-type": "application/json",
            "webhook-id": "msg_1",
            "webhook-timestamp": at,
            "webhook-signature": "v1," + signature,
        },
    )
    assert answer.status_code == 200 and answer.json()["results"][0]["ok"], answer.text


def questions(c):
    """Every query with its answer; none of them changes anything."""
    asked = []

    def ask(method, path, body=None, user=None):
        status, answer = c.call(user, method, path, body)
        asked.append({"user": user, "method": method, "path": path, "body": body, "status": status, "answer": answer})
        return answer

    def walk(path, user=None):
        """All pages of a list: cursors stay valid with later builds."""
        cursor = ""
        while cursor is not None:
            cursor = ask("GET", path + (f"&cursor={cursor}" if cursor else ""), user=user).get("next")

    types = ask("GET", "/v1/channel-types")
    names = [t["type"] for t in types["channel_types"]]
    people = ["alice", "bob", "carol", "dave", "hider", "shower", "revoked", "gone", "late-comer", "m-007", "nobody"]
    for user in people:
        ask("GET", f"/v1/users/{user}")
        walk(f"/v1/users/{user}/channels?limit=7")
        walk(f"/v1/users/{user}/unread?limit=7")
    ask("POST", "/v1/unread", {"user_ids": people})
    rooms = {f"{name}:room": ["old-1", "old-2", "new-1", "new-2", "new-3"] for name in names if name != "late"}
    rooms["steps:room"] += ["s-0", "s-60", "s-119", "tail-0", "tail-80", "tail-99"]
    for name in ("few", "always"):
        rooms[f"{name}:room"] += ["tail-1"]
    rooms |= {
        "late:room": ["late-1"],
        "messaging:large": ["l-1", "l-7", "l-100", "l-255", "l-256", "l-257", "l-290", "l-300"],
        "messaging:steps": [
            "s-0",
            "s-1",
            "s-100",
            "s-250",
            "s-299",
            "parent",
            "reply-0",
            "reply-1",
            "reply-4",
            "reply-5",
            "tail-1",
            "tail-2",
        ],
        "messaging:pair": ["parent", "reply-0"],
        "messaging:private": [f"p-{n}" for n in range(6)],
        "messaging:changes": [f"c-{n}" for n in range(8)],
        "messaging:truncated": [f"t-{n}" for n in range(6)],
        "messaging:again": ["again-0", "again-1"],
        "messaging:deleted": ["x"],
        "messaging:brief": ["x"],
    }
    for cid, messages in rooms.items():
        channel = f"/v1/channels/{cid}"
        ask("GET", channel)
        walk(channel + f"/read-state?limit={100 if cid == 'messaging:large' else 2}")
        ask("POST", channel + "/receipts/query", {"message_ids": messages})
        for message in messages:
            if cid == "messaging:large" and message not in ("l-1", "l-256"):
                continue
            for which in ("readers", "delivered", "unread"):
                walk(
                    f"{channel}/messages/{message}/{which}?limit={100 if cid == 'messaging:large' else 2}&order=joined"
                )
            ask("GET", f"{channel}/messages/{message}/readers?order=time")
            ask("GET", f"{channel}/messages/{message}/members?user_ids=" + ",".join(people[:7]))
    for cid in ("messaging:steps", "messaging:private", "messaging:changes"):
        for user in ("alice", "bob"):
            ask("GET", f"/v1/channels/{cid}/read-state", user=user)
    # A repeated registration gets the first answer; refused acknowledgement requests are reported.
    for name in ("daily", "roles", "long"):
        for n in (1, 2):
            ask(
                "POST",
                f"/v1/channels/{name}:room/messages",
                {"id": f"old-{n}", "user_id": "alice", "receipt": True, "created_at": "2026-01-02T03:04:05.678Z"},
            )
    return asked


def make(binaries, name):
    work = tempfile.mkdtemp()
    try:
        programs = Programs(binaries, work)
        try:
            c = programs.start()
            history(c, programs)
            pages(programs.store_admin)
            tail(c)
        finally:
            programs.end(signal.SIGKILL)
        with tarfile.open(f"{HERE}/{name}.tar.gz", "w:gz") as archive:
            # Leaves out RocksDB's own logs and the reserved space.
            archive.add(
                f"{work}/data",
                "data",
                filter=lambda entry: (
                    None if os.path.basename(entry.name).startswith(("LOG", "reserve", "LOCK")) else entry
                ),
            )
        try:
            asked = questions(programs.start())
        finally:
            programs.end(signal.SIGTERM)
        with open(f"{HERE}/{name}.json", "w") as file:
            file.write("[\n" + ",\n".join(json.dumps(q, separators=(",", ":")) for q in asked) + "\n]\n")
        print(f"{len(asked)} answers, {os.path.getsize(f'{HERE}/{name}.tar.gz')} bytes")
    finally:
        shutil.rmtree(work)


def differences(want, got, place=""):
    """The paths at which `got` lacks a value of `want`, or has another one."""
    if isinstance(want, dict) and isinstance(got, dict):
        is_problem = {"title", "status", "code"} <= want.keys()
        for key, value in want.items():
            if is_problem and key in ("title", "detail"):
                continue  # Texts for people may change; programs depend on the code.
            if key in ("read_at", "delivered_at") and (
                want.get("exact") is False or got.get(key.replace("_at", "_exact")) is False
            ):
                continue  # The latest possible time: that of the query.
            if key == "one_not_exact":
                # The earlier build had one flag for both times.
                if False not in (got.get("read_exact"), got.get("delivered_exact")):
                    yield f"{place}: both times are exact"
                continue
            yield from (
                differences(value, got[key], f"{place}.{key}")
                if key in got
                else [f"{place}.{key}: missing, was {value!r}"]
            )
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for n, (a, b) in enumerate(zip(want, got)):
            yield from differences(a, b, f"{place}[{n}]")
    elif want != got:
        yield f"{place}: {got!r}, was {want!r}"


def compare(name, port, secret_file):
    c = Caller(port, secret_file)
    asked = json.load(open(f"{HERE}/{name}.json"))
    wrong = 0
    for q in asked:
        status, answer = c.call(q["user"], q["method"], q["path"], q["body"])
        found = ([f"status {status}, was {q['status']}"] if status != q["status"] else []) + list(
            differences(q["answer"], answer)
        )
        wrong += bool(found)
        for line in found[:5]:
            print(q["user"] or "server", q["method"], q["path"], line)
    print(f"{len(asked)} answers, {wrong} not as they were")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
