"""Ids of other systems on every route: they get the same answers as plain ids, and are never mixed up.

usage: ids.py BASE_URL JWT_SECRET_FILE TURN NOTES

TURN: `first`; `again` after a restart of the store, which must give the answers in NOTES; `erase`."""
import json, sys, threading
from urllib.parse import quote
import httpx
from access_token import claims, sign

base, secret_file, turn, notes = sys.argv[1:5]
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=60)

# Includes pairs that differ only in their bytes, users named like channels, and the longest id.
USERS = [
    "auth0|5f7c",
    "@bob:example.org",
    "a/b",
    "Zo\u00eb",
    "Zoe\u0308",
    "messaging:room",
    "messaging:room ",
    "日本",
    "🙂",
    "a b",
    "a,b",
    "a+b",
    "a%2Fb",
    "?x=y&z#f",
    "\"quoted\\",
    "a\u2028b",
    "u" * 255,
    "é" * 127 + "x",
    "plain",
    "plain:",
    ":plain",
]
CIDS = [
    "messaging:room",
    "messaging:!room:example.org",
    "messaging:a/b",
    "messaging:Zo\u00eb",
    "messaging:Zoe\u0308",
    "messaging:\u0301",
    "messaging:a,b",
    "messaging:" + "c" * 255,
]
MESSAGES = ["$event:example.org", "2026/01/02 03:04", "é", "e\u0301", "m" * 255, "日本" * 42, "a,b", "%41", "A"]


def token(user):
    return sign(secret, json.dumps(claims(user), ensure_ascii=False).encode())


tokens = {}


def headers(user):
    if user not in tokens:
        tokens[user] = token(user)
    return {"authorization": "Bearer " + tokens[user]}


def call(method, path, body=None, user=None):
    answer = client.request(method, path, headers=headers(user), json=body)
    return answer.status_code, answer.json()


def do(method, path, body=None, user=None):
    status, document = call(method, path, body, user)
    assert status in (200, 201), (method, path, body, user, status, document)
    return document


def erase(user):
    """Erases a user. On a busy machine the answer is that the erasure goes on, and the request is to be repeated."""
    for _ in range(60):
        status, document = call("DELETE", f"/v1/users/{e(user)}")
        if status != 503 or document["code"] != "outcome_unknown":
            break
    assert status == 200, (user, status, document)


def e(text):
    return quote(text, safe="")


def names(rows):
    return [row["user"]["id"] for row in rows]


def same(got, want, what):
    assert got == want, (what, got, want)


class Stream(threading.Thread):
    """The events of a user's stream, up to the event `until`."""

    def __init__(self, user, until):
        super().__init__(daemon=True)
        self.user, self.until, self.events, self.opened, self.failure = user, until, [], threading.Event(), None
        self.start()

    def run(self):
        try:
            with httpx.Client(http1=False, http2=True, base_url=base, timeout=30) as own:
                with own.stream("GET", "/v1/events", headers=headers(self.user)) as answer:
                    assert answer.status_code == 200, answer.read()
                    for line in answer.iter_lines():
                        self.opened.set()
                        if line.startswith("data:"):
                            event = json.loads(line[5:])
                            self.events.append(event)
                            if self.until(event):
                                return
        except Exception as error:
            self.failure = error
            self.opened.set()


def views():
    """The queries of each user, channel and message."""
    found = []
    for user in USERS:
        found.append(do("GET", f"/v1/users/{e(user)}"))
        found.append(do("GET", f"/v1/users/{e(user)}/channels", user=user))
        found.append(do("GET", f"/v1/users/{e(user)}/unread"))
    for cid in CIDS:
        channel = do("GET", f"/v1/channels/{e(cid)}")["channel"]
        same((channel["cid"], channel["type"], channel["id"]), (cid, "messaging", cid.partition(":")[2]), "channel")
        rows, cursor = [], ""
        while cursor is not None:
            page = do("GET", f"/v1/channels/{e(cid)}/read-state?limit=7&cursor={cursor}")
            rows += page["read"]
            cursor = page.get("next")
        same(sorted(names(rows)), sorted(USERS), "read-state of " + cid)
        found.append(rows)
        found.append(do("POST", f"/v1/channels/{e(cid)}/receipts/query", {"message_ids": MESSAGES}))
        for message in MESSAGES[:4]:
            path = f"/v1/channels/{e(cid)}/messages/{e(message)}"
            same(do("GET", path + "/status")["message_id"], message, "status")
            for order in ("joined", "time"):
                readers, cursor = [], ""
                while cursor is not None:
                    page = do("GET", f"{path}/readers?limit=3&order={order}&cursor={cursor}")
                    readers += names(page["members"])
                    cursor = page.get("next")
                same(sorted(readers), sorted(USERS[1:]), f"readers of {message} in {cid}, {order}")
            chosen = do(
                "GET",
                f"{path}/members?user_ids={','.join(e(u) for u in USERS[:10])}"
                f"&user_ids={','.join(e(u) for u in USERS[10:])}",
            )
            same(names(chosen["members"]), USERS, "members of " + message)
            found.append(chosen)
    return found


def first():
    for user in USERS:
        same(
            do("PUT", f"/v1/users/{e(user)}", {"privacy_settings": {"delivery_receipts": {"enabled": True}}})["id"],
            user,
            "settings",
        )
    for cid in CIDS:
        do("PUT", f"/v1/channels/{e(cid)}", {"members": USERS})
    last = MESSAGES[-1]
    streams = [
        Stream(
            user,
            lambda event, user=user: event["type"] == "message.read"
            and event["user"]["id"] == USERS[1]
            and event["cid"] == CIDS[-1],
        )
        for user in USERS[2:6]
    ]
    for stream in streams:
        assert stream.opened.wait(30), stream.user
    for cid in CIDS:
        for message in MESSAGES[:-1]:
            same(
                do("POST", f"/v1/channels/{e(cid)}/messages", {"id": message, "user_id": USERS[0]})["message"]["id"],
                message,
                "message",
            )
    do("POST", "/v1/messages", {"messages": [{"cid": cid, "id": last, "user_id": USERS[0]} for cid in CIDS]})
    for user in reversed(USERS[1:]):
        for cid in CIDS:
            same(
                do("POST", f"/v1/channels/{e(cid)}/read", {"message_id": last}, user)["read"]["user"]["id"],
                user,
                "read",
            )
    for stream in streams:
        stream.join(60)
        assert not stream.is_alive() and not stream.failure, (stream.user, stream.failure)
        readers = {(event["cid"], event["user"]["id"]) for event in stream.events if event["type"] == "message.read"}
        same(readers >= {(cid, user) for cid in CIDS for user in USERS[2:]}, True, "events of " + stream.user)
        assert all(
            event["channel_type"] == "messaging" and "messaging:" + event["channel_id"] == event["cid"]
            for event in stream.events
            if "cid" in event
        )
    # In bodies that name many users.
    for user in USERS[1:]:
        results = do("POST", "/v1/channels/read", {"read_by_channel": {cid: "" for cid in CIDS}}, user)["results"]
        same([(r["cid"], r["ok"]) for r in results], [(cid, True) for cid in CIDS], "batch of " + user)
    results = do(
        "POST",
        "/v1/channels/delivered",
        {"latest_delivered_messages": [{"cid": c, "id": m} for c in CIDS for m in MESSAGES][:100]},
        USERS[1],
    )["results"]
    assert all(r["ok"] for r in results), results
    same(
        [
            u["user_id"] if "user_id" in u else u["user"]["id"]
            for u in do("POST", "/v1/unread", {"user_ids": USERS})["users"]
        ],
        USERS,
        "badges",
    )
    tickets = do(
        "POST",
        "/v1/push/tickets",
        {"tickets": [{"cid": CIDS[-1], "message_id": MESSAGES[4], "user_id": user} for user in USERS]},
    )["tickets"]
    assert all(isinstance(t, str) and len(t) <= 160 for t in tickets[1:]), tickets
    acks = client.post("/v1/push/acks", json={"tickets": tickets[1:]}).json()["results"]
    same(
        [(a["ok"], a["cid"], a["message_id"], a["user_id"]) for a in acks],
        [(True, CIDS[-1], MESSAGES[4], u) for u in USERS[1:]],
        "acks",
    )
    # A stream of chosen channels; the cid of one has a comma.
    with client.stream(
        "GET", f"/v1/events?channels={e(CIDS[6])},{e(CIDS[0])}&channels={e(CIDS[3])}", headers=headers(USERS[2])
    ) as answer:
        assert answer.status_code == 200, answer.read()
    refused()
    json.dump(views(), open(notes, "w"))


def refused():
    """Each invalid id is rejected with the field's code, and changes nothing."""
    room = f"/v1/channels/{e(CIDS[0])}"
    for bad in ["", "a\x00b", "a\nb", "\x7f", "\x85", "\x9f", "x" * 256, "é" * 128]:
        if bad:
            for path, code in [
                (f"/v1/users/{e(bad)}", "invalid_user_id"),
                (f"/v1/channels/{e('messaging:' + bad)}", "invalid_cid"),
                (f"{room}/messages/{e(bad)}/status", "invalid_message_id"),
                (f"{room}/read-state?user_id={e(bad)}", "invalid_user_id"),
                (f"{room}/messages/A/members?user_ids=plain,{e(bad)}", "invalid_user_id"),
                (f"/v1/events?channels={e('messaging:' + bad)}", "invalid_cid"),
            ]:
                status, document = call("GET", path)
                same((status, document["code"]), (400, code), path)
        for path, body, code in [
            (room + "/messages", {"id": bad, "user_id": "plain"}, "invalid_message_id"),
            (room + "/messages", {"id": "x", "user_id": bad}, "invalid_user_id"),
            (room + "/members", {"add": [bad]}, "invalid_user_id"),
            (room + "/read", {"user_id": bad, "message_id": "A"}, "invalid_user_id"),
        ]:
            status, document = call("POST", path, body)
            same((status, document["code"]), (400, code), (path, body))
    # Invalid UTF-8, overlong forms and surrogates, in a path and in a body.
    for raw in ["%FF", "%C0%AF", "%E0%80%AF", "%ED%A0%80", "%C3", "%F4%90%80%80", "%80"]:
        same(call("GET", f"/v1/users/{raw}")[1]["code"], "invalid_user_id", raw)
        same(call("GET", f"/v1/channels/messaging:{raw}")[1]["code"], "invalid_cid", raw)
        content = b'{"id":"' + bytes.fromhex(raw.replace("%", "")) + b'"}'
        answer = client.post(
            room + "/messages", content=content, headers={**headers(None), "content-type": "application/json"}
        )
        assert answer.status_code == 400, (raw, answer.text)
    for dots in ["%2E", "%2E%2E", "%2e."]:
        same(call("GET", f"/v1/users/{dots}")[1]["code"], "invalid_user_id", dots)
        same(call("GET", f"{room}/messages/{dots}/status")[1]["code"], "invalid_message_id", dots)
    # In a body they are valid ids.
    do("PUT", "/v1/channels/messaging:dots", {"members": [".", ".."]})
    do("POST", "/v1/channels/messaging:dots/messages", {"id": "..", "user_id": "."})
    same(
        do("POST", "/v1/channels/messaging:dots/receipts/query", {"message_ids": [".."]})["statuses"][0]["status"],
        "sent",
        "dots",
    )


if turn == "first":
    first()
elif turn == "again":
    same(views(), json.load(open(notes)), "after a restart")
else:
    for user in USERS:
        erase(user)
    for cid in CIDS:
        same(do("GET", f"/v1/channels/{e(cid)}")["channel"]["member_count"], 0, "members after erasing")
    same(
        [do("GET", f"/v1/users/{e(user)}/channels")["channels"] for user in USERS],
        [[]] * len(USERS),
        "channels after erasing",
    )
print(f"ok {len(USERS)} users, {len(CIDS)} channels, {len(MESSAGES)} messages")
