"""Rosters, registered messages, read states of many channels, and channels and users in bulk.
usage: rosters.py BASE_URL JWT_SECRET_FILE"""
import sys, time
import httpx
from access_token import token

base, secret_file = sys.argv[1:3]
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=20)
tokens = {}


def call(method, path, body=None, user=None):
    if user not in tokens:
        tokens[user] = token(secret, user)
    answer = client.request(method, path, headers={"authorization": "Bearer " + tokens[user]}, json=body)
    return answer.status_code, answer.json()


def do(method, path, body=None, user=None, status=(200, 201)):
    got, document = call(method, path, body, user)
    assert got in status, (method, path, body, user, got, document)
    return document


def refused(expected, method, path, body=None, user=None):
    status, document = call(method, path, body, user)
    assert f"{status} {document['code']}" == expected, (method, path, status, document)


def walk(path, key, limit, user=None):
    found, cursor, pages = [], "", 0
    while cursor is not None:
        page = do("GET", f"{path}?limit={limit}&cursor={cursor}", user=user)
        assert len(page[key]) <= limit, page
        found += page[key]
        cursor = page.get("next")
        pages += 1
        assert pages < 1000
    return found


def same(got, want, what):
    assert got == want, (what, got, want)


# Bulk requests: an invalid entry does not fail the others.
made = do(
    "POST",
    "/v1/channels",
    {
        "channels": [
            {
                "cid": "messaging:room",
                "members": [{"user_id": "alice", "role": "owner"}, "bob", {"user_id": "carol", "role": "admin"}],
            },
            {"cid": "nocolon"},
            {"cid": "messaging:empty", "options": {"status_rule": "all"}},
            {"cid": "messaging:bad", "members": ["a\u0001"]},
            {"cid": "messaging:worse", "options": {"status_rule": "most"}},
            {"cid": "messaging:room", "members": ["dave"]},
        ]
    },
)
same(
    [(r["cid"], r["ok"], r.get("created"), r.get("code")) for r in made["results"]],
    [
        ("messaging:room", True, True, None),
        ("nocolon", False, None, "invalid_cid"),
        ("messaging:empty", True, True, None),
        ("messaging:bad", False, None, "invalid_user_id"),
        ("messaging:worse", False, None, "invalid_option"),
        ("messaging:room", True, False, None),
    ],
    "channels",
)
refused("404 channel_not_found", "GET", "/v1/channels/messaging:bad")
same(do("GET", "/v1/channels/messaging:empty")["channel"]["options"]["status_rule"], "all", "options")
users = do(
    "POST",
    "/v1/users",
    {
        "users": [
            {"id": "bob", "privacy_settings": {"read_receipts": {"enabled": False}}},
            {"id": "\u0007"},
            {"id": "dave", "revoke_tokens_before": "2020-01-01T00:00:00Z"},
            {"id": "erin", "privacy_settings": {"read_receipts": {"enabled": "no"}}},
        ]
        + [{"id": f"user-{n}", "privacy_settings": {"delivery_receipts": {"enabled": False}}} for n in range(90)]
    },
)
same(
    [r.get("code", r["ok"]) for r in users["results"]],
    [True, "invalid_user_id", True, "invalid_field"] + [True] * 90,
    "users",
)
same(do("GET", "/v1/users/bob")["privacy_settings"]["read_receipts"], {"enabled": False}, "bob's settings")
same(
    do("GET", "/v1/users/user-89")["privacy_settings"]["delivery_receipts"],
    {"enabled": False},
    "the last one's settings",
)
same(do("GET", "/v1/users/dave")["revoke_tokens_before"], "2020-01-01T00:00:00.000Z", "dave's tokens")
do("POST", "/v1/users", {"users": [{"id": "bob", "privacy_settings": {"read_receipts": {"enabled": True}}}]})
for path, body in [
    ("/v1/channels", {"channels": [{"cid": f"a:{n}"} for n in range(101)]}),
    ("/v1/users", {"users": [{"id": f"u{n}"} for n in range(101)]}),
    ("/v1/channels", {"channels": [{}]}),
    ("/v1/users", {"users": [{}]}),
    ("/v1/channels", {}),
    ("/v1/users", {"users": {}}),
    ("/v1/read-state", {}),
    ("/v1/read-state", {"cids": ["a:b"] * 101}),
    ("/v1/read-state", {"cids": [7]}),
]:
    refused("400 invalid_field", "POST", path, body)
for path, body in [("/v1/channels", {"channels": []}), ("/v1/users", {"users": []})]:
    refused("403 server_token_required", "POST", path, body, "alice")
    same(do("POST", path, body)["results"], [], path)

# The members of a channel.
room = "/v1/channels/messaging:room"
for limit in (1, 2, 100):
    roster = walk(room + "/members", "members", limit)
    same(
        [(m["user"]["id"], m.get("role")) for m in roster],
        [("alice", "owner"), ("bob", None), ("carol", "admin"), ("dave", None)],
        f"roster by {limit}",
    )
same(walk(room + "/members", "members", 100, "bob"), roster, "a member's roster")
assert all(m["joined_at"].endswith("Z") for m in roster)
do("POST", room + "/members", {"remove": ["bob", "dave"]})
do("POST", room + "/members", {"add": ["bob", {"user_id": "carol", "role": "member"}]})
same(
    [(m["user"]["id"], m.get("role")) for m in walk(room + "/members", "members", 1)],
    [("alice", "owner"), ("carol", "member"), ("bob", None)],
    "roster after changes",
)
assert call("GET", room + "/members", user="dave")[0] in (403, 404)
refused("404 member_not_found", "GET", room + "/members?user_id=dave")
refused("400 invalid_cursor", "GET", room + "/members?cursor=r1")
refused("400 invalid_query", "GET", room + "/members?limit=101")
refused("404 channel_not_found", "GET", "/v1/channels/messaging:nowhere/members")
same(walk("/v1/channels/messaging:empty/members", "members", 100), [], "nobody")

# The registered messages.
for n in range(1, 6):
    do(
        "POST",
        room + "/messages",
        {
            "id": f"m{n}",
            **({"user_id": "alice"} if n != 3 else {}),
            "silent": n == 2,
            "receipt": n == 4,
            "created_at": f"2026-01-0{n}T00:00:00.000Z",
        },
    )
for parent, count in (("m2", 3), ("m4", 2)):
    for n in range(count):
        do("POST", room + "/messages", {"id": f"{parent}-r{n}", "user_id": "bob", "parent_id": parent})
do("DELETE", room + "/messages/m2-r1")
do("DELETE", room + "/messages/m5")
want = [
    ("m4-r1", 2, "bob", "m4"),
    ("m4-r0", 1, "bob", "m4"),
    ("m4", 4, "alice", None),
    ("m3", 3, None, None),
    ("m2-r2", 3, "bob", "m2"),
    ("m2-r0", 1, "bob", "m2"),
    ("m2", 2, "alice", None),
    ("m1", 1, "alice", None),
]
for limit in (1, 2, 3, 100):
    listed = walk(room + "/messages", "messages", limit)
    same(
        [(m["id"], m["seq"], m.get("user", {}).get("id"), m.get("parent_id")) for m in listed],
        want,
        f"messages by {limit}",
    )
same([m["id"] for m in listed if m.get("silent")], ["m2"], "silent messages")
same([m["id"] for m in listed if m.get("receipt")], ["m4"], "receipts")
same([m["created_at"] for m in listed if m["id"] == "m4"], ["2026-01-04T00:00:00.000Z"], "time")
do("DELETE", room + "/messages/m4")
same(
    [m["id"] for m in walk(room + "/messages", "messages", 2)],
    ["m3", "m2-r2", "m2-r0", "m2", "m1"],
    "without a deleted parent and its replies",
)
do("POST", room + "/truncate", {"before": "m3"})
same([m["id"] for m in walk(room + "/messages", "messages", 1)], ["m3"], "after truncating")
refused("403 server_token_required", "GET", room + "/messages", user="alice")
refused("400 invalid_cursor", "GET", room + "/messages?cursor=m")
refused("400 invalid_cursor", "GET", room + "/messages?cursor=m1-")
same(do("GET", room + "/messages?cursor=m4294967295")["messages"][0]["id"], "m3", "a cursor ahead of everything")

# Many deleted messages: a page ends early, and the list continues on the next one.
do("PUT", "/v1/channels/messaging:long", {"members": ["alice"]})
for start in range(0, 9000, 1000):
    do(
        "POST",
        "/v1/messages",
        {"messages": [{"cid": "messaging:long", "id": f"l{n}"} for n in range(start, start + 1000)]},
    )
do("POST", "/v1/channels/messaging:long/truncate", {"before": "l8990"})
same(
    [m["id"] for m in walk("/v1/channels/messaging:long/messages", "messages", 7)],
    [f"l{n}" for n in range(8999, 8989, -1)],
    "a long channel",
)

# Totals and newest-first order, in the lists of a message.
do("PUT", "/v1/channels/messaging:lists", {"members": ["alice", *[f"u{n}" for n in range(7)]]})
do("POST", "/v1/channels/messaging:lists/messages", {"id": "x", "user_id": "alice"})
for n in (3, 1, 5):
    do("POST", "/v1/channels/messaging:lists/read", {"message_id": "x"}, f"u{n}")
    time.sleep(0.01)
do("POST", "/v1/channels/delivered", {"latest_delivered_messages": [{"cid": "messaging:lists", "id": "x"}]}, "u0")
path = "/v1/channels/messaging:lists/messages/x"
status = do("GET", path + "/status")
for which, total in (
    ("readers", status["read_count"]),
    ("delivered", status["delivered_count"] - status["read_count"]),
    ("unread", status["unread_count"]),
):
    for order in ("joined", "time", "time_desc"):
        page = do("GET", f"{path}/{which}?order={order}&limit=1")
        same(page["total"], total, which)
        found = [m["user"]["id"] for m in page["members"]]
        while "next" in page:
            page = do("GET", f"{path}/{which}?order={order}&limit=1&cursor={page['next']}")
            assert "total" not in page, page
            found += [m["user"]["id"] for m in page["members"]]
        same(len(found), total, which)
        if which == "readers":
            same(
                found,
                {"joined": ["u1", "u3", "u5"], "time": ["u3", "u1", "u5"], "time_desc": ["u5", "u1", "u3"]}[order],
                order,
            )
refused("400 invalid_cursor", "GET", f"{path}/readers?order=time_desc&cursor=t1-u3")
members = do("GET", path + "/members?user_ids=u1,u0,u2")["members"]
same(
    [(m["status"], m.get("read_exact"), m.get("delivered_exact"), "exact" in m) for m in members],
    [("read", True, True, False), ("delivered", None, True, False), ("sent", None, None, False)],
    "members",
)

# The read states of many channels equal those of each.
for n in range(3):
    do("PUT", f"/v1/channels/messaging:s{n}", {"members": ["alice", "bob"]})
    do("POST", f"/v1/channels/messaging:s{n}/messages", {"id": "x", "user_id": "alice"})
do("POST", "/v1/channels/messaging:s1/read", {}, "bob")
cids = [
    "messaging:s0",
    "messaging:nowhere",
    "messaging:s1",
    "not a cid",
    "messaging:empty",
    "messaging:s2",
    "messaging:s0",
]
for caller, extra in [(None, {}), (None, {"user_id": "alice"}), ("alice", {}), ("bob", {"user_id": "bob"})]:
    states = do("POST", "/v1/read-state", {"cids": cids, **extra}, caller)["states"]
    same([s["cid"] for s in states], cids, "order")
    for state in states:
        if state["cid"] == "not a cid":
            same(state.get("code"), "invalid_cid", state)
            continue
        query = "?user_id=" + extra["user_id"] if extra else ""
        status, alone = call("GET", f"/v1/channels/{state['cid']}/read-state{query}", user=caller)
        if status == 200:
            same(state["read"], alone["read"], state["cid"])
        else:
            same(state.get("code"), alone["code"], state["cid"])
refused("403 user_id_mismatch", "POST", "/v1/read-state", {"cids": cids, "user_id": "alice"}, "bob")
print("ok rosters")
