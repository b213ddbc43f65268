"""The receipt features of the hosted chat products, one by one, as an application's backend and its users
call them.

usage: hosted_features.py BASE_URL JWT_SECRET_FILE
Prints "ok NAME" or "FAILED NAME: why" for each feature; exits 1 if one failed."""
import sys
import time
import traceback

import httpx
from access_token import token
from waiting import eventually_equal

base, secret_file = sys.argv[1:3]
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=60)


tokens = {}


def call(method, path, as_user, body=None, status=200):
    """One request as a user, or as the server where `as_user` is None."""
    if as_user not in tokens:
        tokens[as_user] = token(secret, as_user)
    answer = client.request(method, path, headers={"authorization": "Bearer " + tokens[as_user]}, json=body)
    assert answer.status_code == status, (method, path, answer.status_code, answer.text)
    return answer.json()


def equal(actual, expected, what=""):
    assert actual == expected, f"{what}: {actual} is not {expected}"


numbers = iter(range(1_000_000))


class Channel:
    """A channel of its own for each feature."""

    def __init__(self, members, options=None, kind="messaging"):
        self.cid = f"{kind}:features-{next(numbers)}"
        self.path = "/v1/channels/" + self.cid
        call("PUT", self.path, None, {"members": members, "options": options or {}}, 201)

    def write(self, message, user, status=201, **fields):
        return call("POST", self.path + "/messages", None, {"id": message, "user_id": user, **fields}, status)[
            "message"
        ]

    def read(self, user, message=None, status=200):
        answer = call("POST", self.path + "/read", user, {"message_id": message} if message else {}, status)
        return answer.get("read", answer)

    def unread(self, user, message, status=200):
        answer = call("POST", self.path + "/unread", user, {"message_id": message}, status)
        return answer.get("read", answer)

    def deliver(self, user, message):
        body = {"latest_delivered_messages": [{"cid": self.cid, "id": message}]}
        equal(call("POST", "/v1/channels/delivered", user, body, 201)["results"][0]["ok"], True)

    def status(self, message, user):
        return call("GET", f"{self.path}/messages/{message}/status", user)

    def ticks(self, message, user):
        return self.status(message, user)["status"]

    def statuses(self, messages, user):
        return call("POST", self.path + "/receipts/query", user, {"message_ids": messages})["statuses"]

    def acknowledge(self, user, messages, status=200, **fields):
        return call("POST", self.path + "/receipts", user, {"message_ids": messages, **fields}, status)

    def rows(self, user, **query):
        path = self.path + "/read-state?" + "&".join(f"{k}={v}" for k, v in query.items())
        return call("GET", path, user)

    def row(self, user, of):
        return next(r for r in self.rows(user)["read"] if r["user"]["id"] == of)

    def list(self, which, message, user, status=200, **query):
        path = f"{self.path}/messages/{message}/{which}?" + "&".join(f"{k}={v}" for k, v in query.items())
        return call("GET", path, user, None, status)

    def names(self, which, message, user, **query):
        """All pages of a list, as names."""
        found, page = [], self.list(which, message, user, **query)
        while True:
            found += [m["user"]["id"] for m in page["members"]]
            if "next" not in page:
                return found
            page = self.list(which, message, user, **{**query, "cursor": page["next"]})


def hide(user, read=None, delivered=None):
    settings = {}
    if read is not None:
        settings["read_receipts"] = {"enabled": not read}
    if delivered is not None:
        settings["delivery_receipts"] = {"enabled": not delivered}
    return call("PUT", "/v1/users/" + user, user, {"privacy_settings": settings})


features = []


def feature(function):
    features.append(function)
    return function


@feature
def sent_delivered_read():
    channel = Channel(["alice", "bob", "carol"])
    channel.write("m1", "alice")
    equal(channel.ticks("m1", "alice"), "sent")
    channel.deliver("bob", "m1")
    equal(channel.ticks("m1", "alice"), "delivered")
    channel.read("bob", "m1")
    status = channel.status("m1", "alice")
    equal(
        [status[k] for k in ("status", "read_count", "delivered_count", "unread_count", "member_count")],
        ["read", 1, 1, 1, 2],
    )


@feature
def ticks_for_one_or_for_all():
    for rule, after_one in (("any", "read"), ("all", "delivered"), (2, "delivered"), ("50%", "delivered")):
        channel = Channel(["alice", "bob", "carol", "dave", "erin"], {"status_rule": rule})
        channel.write("m1", "alice")
        for user in ("bob", "carol", "dave", "erin"):
            channel.deliver(user, "m1")
        channel.read("bob", "m1")
        equal(channel.ticks("m1", "alice"), after_one, rule)
        for user in ("carol", "dave", "erin"):
            channel.read(user, "m1")
        equal(channel.ticks("m1", "alice"), "read", rule)


@feature
def hidden_and_departed_never_hold_all_back():
    channel = Channel(["alice", "bob", "hector", "dora"], {"status_rule": "all"})
    hide("hector", read=True, delivered=True)
    channel.write("m1", "alice")
    channel.read("bob", "m1")
    equal(channel.ticks("m1", "alice"), "sent")
    call("POST", channel.path + "/members", None, {"remove": ["dora"]})
    equal(channel.ticks("m1", "alice"), "read")


@feature
def user_switches():
    channel = Channel(["alice", "bob", "uma"])
    channel.write("m1", "alice")
    channel.read("uma", "m1")
    equal(channel.ticks("m1", "alice"), "read")
    equal(hide("uma", read=True)["privacy_settings"]["read_receipts"], {"enabled": False})
    equal(channel.ticks("m1", "alice"), "sent")
    equal(channel.names("readers", "m1", "alice"), [])
    equal(channel.row("alice", "uma")["last_read_seq"], 0)
    equal(channel.row("uma", "uma")["unread_messages"], 0)
    equal(channel.row("uma", "uma")["last_read_seq"], 1)
    channel.deliver("uma", "m1")
    equal(channel.ticks("m1", "alice"), "delivered", "each switch is independent")
    before = channel.row("uma", "uma")["last_read"]
    hide("uma", read=False)
    equal(channel.ticks("m1", "alice"), "read")
    equal(channel.row("alice", "uma")["last_read"], before, "moved while shown: its own time")
    channel.write("m2", "alice")
    hide("uma", read=True)
    hidden_at = channel.read("uma", "m2")["last_read"]
    time.sleep(0.02)
    hide("uma", read=False)
    shown = channel.row("alice", "uma")
    assert shown["last_read_seq"] == 2 and shown["last_read"] > hidden_at, "counts from the time of showing again"
    reader = channel.list("readers", "m2", "alice")["members"][0]
    assert reader["exact"] is False and reader["read_at"] > hidden_at, reader


@feature
def type_switches():
    call("PUT", "/v1/channel-types/quiet", None, {"read_events": False})
    channel = Channel(["alice", "bob"], kind="quiet")
    channel.write("m1", "alice")
    equal(channel.read("bob", "m1")["unread_messages"], 0)
    status = channel.status("m1", "alice")
    equal([status[k] for k in ("status", "read_count", "read_events", "delivery_events")], ["sent", 0, False, True])
    channel.deliver("bob", "m1")
    equal(channel.ticks("m1", "alice"), "delivered")
    call("PUT", "/v1/channel-types/quiet", None, {"read_events": True})
    equal(channel.ticks("m1", "alice"), "read", "switched on later, also for earlier reads")


@feature
def whole_channel_read():
    channel = Channel(["alice", "bob"])
    for number in range(1, 6):
        channel.write(f"m{number}", "alice")
    equal(channel.row("bob", "bob")["unread_messages"], 5)
    row = channel.read("bob")
    equal([row["last_read_seq"], row["unread_messages"]], [5, 0])


@feature
def read_up_to_a_message():
    channel = Channel(["alice", "bob"])
    for number in range(1, 6):
        channel.write(f"m{number}", "alice")
    row = channel.read("bob", "m3")
    equal([row["last_read_message_id"], row["unread_messages"]], ["m3", 2])
    equal(channel.read("bob", "m2")["last_read_seq"], 3, "a read mark does not move back")
    equal(channel.read("bob", "m9", 404)["code"], "message_not_found", "a read mark stops at the newest message")


@feature
def many_channels_in_one_call():
    channels = [Channel(["alice", "bob"]) for _ in range(3)]
    for channel in channels:
        channel.write("m1", "alice")
    body = {
        "read_by_channel": {channels[0].cid: "m1", channels[1].cid: "", "messaging:none": "", channels[2].cid: "m1"}
    }
    results = call("POST", "/v1/channels/read", "bob", body)["results"]
    equal([r["ok"] for r in results], [True, True, False, True])
    equal(results[2]["code"], "channel_not_found")
    equal([c.ticks("m1", "alice") for c in channels], ["read"] * 3)


@feature
def mark_unread_is_ones_own_view():
    channel = Channel(["alice", "bob"])
    for number in range(1, 5):
        channel.write(f"m{number}", "alice")
    channel.deliver("bob", "m4")
    channel.read("bob", "m4")
    row = channel.unread("bob", "m2")
    equal([row["unread_messages"], row["first_unread_message_id"], row["last_read_seq"]], [3, "m2", 1])
    equal(channel.ticks("m4", "alice"), "read", "others still see the watermark")
    equal(channel.row("alice", "bob")["last_delivered_seq"], 4, "delivered is untouched")
    off = Channel(["alice", "bob"], {"mark_unread": "off"})
    off.write("m1", "alice")
    equal(off.unread("bob", "m1", 403)["code"], "mark_unread_off")


@feature
def read_state_of_the_newest_and_oneself():
    channel = Channel([f"u{number}" for number in range(150)])
    page = channel.rows("u0")
    names = [r["user"]["id"] for r in page["read"]]
    equal(len(names), 100)
    equal(names[0], "u0", "the own row, although it is the oldest")
    equal(names[1:3], ["u149", "u148"])
    rest = channel.rows("u0", cursor=page["next"])
    equal(len(rest["read"]), 50)
    equal(sorted(names + [r["user"]["id"] for r in rest["read"]]), sorted(f"u{number}" for number in range(150)))


@feature
def where_to_jump():
    channel = Channel(["alice", "bob"])
    for number in range(1, 5):
        channel.write(f"m{number}", "alice", silent=number == 3)
    channel.read("bob", "m2")
    row = channel.row("bob", "bob")
    equal([row["last_read_message_id"], row["first_unread_message_id"]], ["m2", "m4"])


@feature
def new_members_with_and_without_the_past():
    for history, start in (("visible", 1), ("hidden", 0)):
        channel = Channel(["alice"], {"history": history})
        channel.write("m1", "alice")
        call("POST", channel.path + "/members", None, {"add": ["bob"]})
        row = channel.row("bob", "bob")
        equal([row["last_read_seq"], row["unread_messages"]], [start, 0], history)
        equal(channel.status("m1", "alice")["member_count"], 0, "not a recipient of earlier messages")


@feature
def sending_moves_ones_own_position():
    channel = Channel(["alice", "bob"])
    channel.write("m1", "alice")
    channel.write("m2", "bob")
    equal([channel.row("bob", "bob")[k] for k in ("last_read_seq", "unread_messages")], [2, 0])
    equal(channel.ticks("m1", "alice"), "read")


@feature
def status_of_a_message_for_chosen_members():
    channel = Channel(["alice", "bob", "carol", "dave"])
    channel.write("m1", "alice")
    channel.read("bob", "m1")
    channel.deliver("carol", "m1")
    members = channel.list("members", "m1", "alice", user_ids="dave,bob,nobody,carol")["members"]
    equal([(m["user"]["id"], m.get("status") or m["code"]) for m in members],
          [("dave", "sent"), ("bob", "read"), ("nobody", "member_not_found"), ("carol", "delivered")])
    assert "read_at" in members[1] and members[1]["read_exact"] is True and "delivered_at" in members[3], members


@feature
def receipts_for_messages_that_ask():
    channel = Channel(["alice", "bob", "carol"])
    channel.write("plain", "alice")
    channel.write("asked", "alice", receipt=True)
    equal([s["receipt_status"] for s in channel.statuses(["plain", "asked"], "alice")], ["none", "processing"])
    equal(channel.acknowledge("bob", ["asked"]), {"acknowledged": ["asked"], "errors": []})
    equal(channel.acknowledge("bob", ["asked"]), {"acknowledged": ["asked"], "errors": []}, "again")
    status = channel.status("asked", "alice")
    equal([status["receipt_status"], status["read_count"]], ["processing", 1])
    equal(channel.row("bob", "bob")["last_read_seq"], 0, "no watermark moves")
    channel.acknowledge("carol", ["asked"])
    equal(channel.status("asked", "alice")["receipt_status"], "done")


@feature
def many_receipts_in_one_call():
    channel = Channel(["alice", "bob", "carol"])
    for number in range(1, 4):
        channel.write(f"m{number}", "alice", receipt=number != 2)
    channel.write("own", "bob", receipt=True)
    answer = channel.acknowledge("bob", ["m1", "m2", "nothing", "own", "m3"])
    equal(answer["acknowledged"], ["m1", "m3"])
    equal([(e["message_id"], e["code"]) for e in answer["errors"]],
          [("m2", "receipt_not_requested"), ("nothing", "message_not_found"), ("own", "own_message")])


@feature
def conversation_receipts_of_two():
    channel = Channel(["alice", "bob"])
    for number in range(1, 4):
        channel.write(f"m{number}", "alice", receipt=True)
    channel.read("bob", "m2")
    equal([s["receipt_status"] for s in channel.statuses(["m1", "m2", "m3"], "alice")], ["done", "done", "processing"])
    group = Channel(["alice", "bob", "carol"])
    group.write("m1", "alice", receipt=True)
    group.read("bob", "m1")
    group.read("carol", "m1")
    equal(group.status("m1", "alice")["receipt_status"], "processing", "in a group, each acknowledges")
    always = Channel(["alice", "bob", "carol"], {"read_acks_receipts": "always"})
    always.write("m1", "alice", receipt=True)
    always.read("bob", "m1")
    always.read("carol", "m1")
    equal(always.status("m1", "alice")["receipt_status"], "done")


@feature
def counts_for_all_or_for_the_sender():
    open_to_all = Channel(["alice", "bob", "carol"])
    closed = Channel(["alice", "bob", "carol"], {"counts_visible_to": "sender"})
    for channel in (open_to_all, closed):
        channel.write("m1", "alice")
        channel.read("bob", "m1")
    counts = ("read_count", "delivered_count", "unread_count", "member_count")
    equal([open_to_all.status("m1", "carol")[k] for k in counts], [1, 1, 1, 2])
    equal([closed.status("m1", "carol")[k] for k in counts], [0, 0, 0, 0])
    equal([closed.status("m1", "alice")[k] for k in counts], [1, 1, 1, 2])
    equal(closed.list("readers", "m1", "carol", 403)["code"], "counts_not_visible")
    equal(closed.names("readers", "m1", "alice"), ["bob"])
    equal([r["user"]["id"] for r in closed.rows("carol")["read"]], ["carol"])
    found = open_to_all.statuses(["m1", "missing"], "bob")
    equal([s.get("status") or s["code"] for s in found], ["read", "message_not_found"])


@feature
def lists_beyond_a_hundred_members():
    users = [f"v{number:03}" for number in range(250)]
    channel = Channel(["alice"] + users)
    channel.write("m1", "alice")
    for user in users[::2]:
        channel.read(user, "m1")
    channel.deliver(users[1], "m1")
    equal(channel.names("readers", "m1", "alice"), users[::2])
    equal(channel.names("unread", "m1", "alice"), users[1::2])
    equal(channel.names("delivered", "m1", "alice"), [users[1]])
    equal(channel.names("readers", "m1", "alice", limit=7), users[::2])
    equal(channel.names("readers", "m1", "alice", limit=7, order="time"), users[::2], "read in this order")
    first = channel.list("readers", "m1", "alice", limit=10)
    call("POST", channel.path + "/members", None, {"remove": [users[10]]})
    channel.read(users[21], "m1")
    rest = channel.names("readers", "m1", "alice", cursor=first["next"])
    equal(rest[:3], [users[20], users[21], users[22]], "a page stays correct while positions move")


@feature
def a_note_with_an_acknowledgement():
    channel = Channel(["alice", "bob", "carol"])
    channel.write("m1", "alice", receipt=True)
    channel.acknowledge("bob", ["m1"], note="on my way ✓")
    reader = channel.list("readers", "m1", "alice")["members"][0]
    equal([reader["user"]["id"], reader["note"]], ["bob", "on my way ✓"])
    equal(channel.acknowledge("carol", ["m1"], 400, note="x" * 1025)["code"], "invalid_field")


@feature
def limits_and_expiry():
    channel = Channel(["alice", "bob", "carol"], {"receipt_ttl": 1, "receipt_daily_limit": 2})
    equal("receipt_refused" in channel.write("m1", "alice", receipt=True), False)
    channel.write("m2", "alice", receipt=True)
    equal(channel.write("m3", "alice", receipt=True)["receipt_refused"], "receipt_limit_reached")
    equal(channel.write("m3", "alice", 200, receipt=True)["receipt_refused"], "receipt_limit_reached", "repeated")
    channel.acknowledge("bob", ["m1"])
    eventually_equal("the expiry of a receipt", "expired", lambda: channel.status("m1", "alice")["receipt_status"])
    equal(channel.acknowledge("carol", ["m1"])["errors"], [{"message_id": "m1", "code": "receipt_expired"}])
    few = Channel(["alice", "bob", "carol"], {"receipt_max_members": 1})
    few.write("m1", "alice", receipt=True)
    few.acknowledge("bob", ["m1"], note="first")
    few.acknowledge("carol", ["m1"], note="second")
    notes = {m["user"]["id"]: m.get("note") for m in few.list("readers", "m1", "alice")["members"]}
    equal(notes, {"bob": None, "carol": "second"}, "the oldest note is dropped; the acknowledgement stays")
    equal(few.status("m1", "alice")["receipt_status"], "done")


@feature
def roles_that_may_ask():
    channel = Channel([{"user_id": "alice", "role": "admin"}, "bob"], {"receipt_request_roles": ["admin"]})
    equal("receipt_refused" in channel.write("m1", "alice", receipt=True), False)
    equal(channel.write("m2", "bob", receipt=True)["receipt_refused"], "receipt_not_allowed")
    equal([s["receipt_status"] for s in channel.statuses(["m1", "m2"], None)], ["processing", "none"])


@feature
def exact_times():
    channel = Channel(["alice", "bob"], {"kept_steps": 2})
    times = []
    for number in range(1, 4):
        channel.write(f"m{number}", "alice")
        times.append(channel.read("bob", f"m{number}")["last_read"])
        time.sleep(0.005)
    found = [channel.list("readers", f"m{number}", "alice")["members"][0] for number in range(1, 4)]
    equal([(m["read_at"], m["exact"]) for m in found], [(times[1], False), (times[1], True), (times[2], True)])


@feature
def tokens_are_revoked():
    channel = Channel(["alice", "rita"])
    channel.write("m1", "alice")
    channel.read("rita", "m1")
    cut = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 5))
    equal(call("PUT", "/v1/users/rita", "rita", {"revoke_tokens_before": cut}, 403)["code"], "server_token_required")
    call("PUT", "/v1/users/rita", None, {"revoke_tokens_before": cut})
    equal(channel.read("rita", "m1", 401)["code"], "token_revoked")
    equal(call("GET", channel.path + "/read-state", "rita", None, 401)["code"], "token_revoked")
    tokens["rita"] = token(secret, "rita", iat=int(time.time()) + 10, nbf=0)
    channel.read("rita", "m1")


@feature
def every_channel_read_at_once():
    channels = [Channel(["alice", "mia"]) for _ in range(3)]
    for channel in channels:
        channel.write("m1", "alice")
        channel.write("m2", "alice")
    channels[0].read("mia")
    equal(call("GET", "/v1/users/mia/unread", "mia")["total_unread_count"], 4)
    equal(call("POST", "/v1/channels/read", "mia", {"read_by_channel": {}})["results"], [], "an empty map marks none")
    equal(call("POST", "/v1/channels/read", "mia", {"all": True}), {"channels_read": 3, "failed": []})
    equal([channel.row("alice", "mia")["last_read_message_id"] for channel in channels], ["m2"] * 3)
    equal(call("GET", "/v1/users/mia/unread", "mia")["total_unread_count"], 0)


@feature
def unread_totals_and_lists():
    channels = [Channel(["alice", "tom"]) for _ in range(4)]
    for count, channel in enumerate(channels):
        for number in range(count):
            channel.write(f"m{number}", "alice")
    channels[3].write("silent", "alice", silent=True)
    channels[3].read("tom", "m0")
    found = call("GET", "/v1/users/tom/unread", "tom")
    equal([found[k] for k in ("total_unread_count", "unread_channels", "unread_threads")], [5, 3, 0])
    listed = {entry["cid"]: entry for entry in found["channels"]}
    equal(
        {cid: entry["unread_messages"] for cid, entry in listed.items()},
        {channels[n].cid: (0, 1, 2, 2)[n] for n in (1, 2, 3)},
    )
    entry = listed[channels[3].cid]
    equal([entry["last_read_message_id"], entry["first_unread_message_id"]], ["m0", "m1"])
    first = call("GET", "/v1/users/tom/unread?limit=2", "tom")
    second = call("GET", "/v1/users/tom/unread?limit=2&cursor=" + first["next"], "tom")
    equal(sorted(e["cid"] for e in first["channels"] + second["channels"]), sorted(listed))
    equal("next" in second, False)
    equal(call("GET", "/v1/users/tom/unread", "alice", None, 403)["code"], "user_id_mismatch")
    answer = call("POST", channels[1].path + "/read?totals=true", "tom", {})
    equal([answer[k] for k in ("total_unread_count", "unread_channels", "unread_threads")], [4, 2, 0])


@feature
def badge_counts_for_a_push_worker():
    channel = Channel(["alice", "vic", "wes"])
    channel.write("m1", "alice")
    channel.write("m2", "alice")
    channel.read("wes", "m1")
    found = call("POST", "/v1/unread", None, {"user_ids": ["vic", "nobody-at-all", "wes"]})["users"]
    equal([(u["user_id"], u["total_unread_count"]) for u in found], [("vic", 2), ("nobody-at-all", 0), ("wes", 1)])
    equal(call("POST", "/v1/unread", "vic", {"user_ids": ["vic"]}, 403)["code"], "server_token_required")


@feature
def channels_of_a_user():
    channels = [Channel(["kim"]) for _ in range(5)]
    call("POST", channels[1].path + "/members", None, {"remove": ["kim"]})
    found, cursor = [], ""
    while True:
        page = call("GET", "/v1/users/kim/channels?limit=2" + cursor, "kim")
        found += [entry["cid"] for entry in page["channels"]]
        if "next" not in page:
            break
        cursor = "&cursor=" + page["next"]
    equal(sorted(found), sorted(channel.cid for channel in channels if channel is not channels[1]))
    call("DELETE", channels[2].path, None)
    equal(channels[2].cid in [e["cid"] for e in call("GET", "/v1/users/kim/channels", "kim")["channels"]], False)


@feature
def threads_have_positions_of_their_own():
    channel = Channel(["alice", "bob", "theo"])
    channel.write("p", "alice")
    channel.read("theo")
    first = channel.write("r1", "bob", parent_id="p")
    equal([first["seq"], channel.write("r2", "bob", parent_id="p")["seq"], channel.write("n", "bob")["seq"]], [1, 2, 2])
    equal(channel.row("theo", "theo")["unread_messages"], 1, "a reply does not count as unread in the channel")
    totals = ("total_unread_count", "unread_channels", "unread_threads")
    equal([call("GET", "/v1/users/theo/unread", "theo")[k] for k in totals], [1, 1, 0], "not in the thread")
    row = call("POST", channel.path + "/read", "theo", {"thread_id": "p"})["read"]
    equal([row["last_read_message_id"], row["unread_messages"]], ["r2", 0])
    channel.write("r3", "alice", parent_id="p")
    equal([call("GET", "/v1/users/theo/unread", "theo")[k] for k in totals], [1, 1, 1])
    equal(
        call("POST", channel.path + "/read", "theo", {"thread_id": "p", "message_id": "r3"})["read"]["unread_messages"],
        0,
    )
    equal(channel.ticks("r3", "alice"), "read")
    equal(call("POST", channel.path + "/unread", "theo", {"thread_id": "p"})["read"]["unread_messages"], 3)
    equal(
        call("POST", channel.path + "/unread", "theo", {"message_id": "r2"})["read"]["unread_messages"],
        2,
        "a reply names its thread",
    )
    channel.deliver("bob", "r3")
    call("POST", channel.path + "/members", None, {"remove": ["theo"]})
    equal(channel.ticks("r3", "alice"), "delivered", "leaving the channel leaves its threads")


@feature
def messages_and_history_removed():
    channel = Channel(["alice", "rob"])
    for number in range(1, 6):
        channel.write(f"m{number}", "alice")
    call("DELETE", channel.path + "/messages/m5", None)
    call("DELETE", channel.path + "/messages/m5", None)
    equal(channel.row("rob", "rob")["unread_messages"], 4)
    equal(channel.statuses(["m5"], "alice")[0]["code"], "message_deleted")
    again = call("POST", channel.path + "/messages", None, {"id": "m5", "user_id": "alice"}, 409)
    equal(again["code"], "message_deleted")
    call("POST", channel.path + "/truncate", None, {"before": "m3"})
    equal(
        [s.get("code", s.get("status")) for s in channel.statuses(["m2", "m3"], "alice")], ["message_deleted", "sent"]
    )
    equal(channel.row("rob", "rob")["unread_messages"], 2)
    equal(channel.read("rob", "m2")["last_read_seq"], 2, "a removed message still marks a position")
    call("POST", channel.path + "/truncate", None, {})
    equal(channel.row("rob", "rob")["unread_messages"], 0)
    equal(channel.write("m6", "alice")["seq"], 6)


@feature
def channels_deleted_and_made_anew():
    channel = Channel(["alice", "nell"])
    channel.write("m1", "alice")
    channel.read("nell")
    equal(call("DELETE", channel.path, None)["deleted"], True)
    equal(call("DELETE", channel.path, None)["deleted"], False)
    equal(channel.read("nell", status=404)["code"], "channel_not_found")
    equal(call("GET", "/v1/users/nell/channels", "nell")["channels"], [])
    call("PUT", channel.path, None, {"members": ["nell"]}, 201)
    equal(channel.write("m1", "alice")["seq"], 1, "a new incarnation")
    equal(channel.row("nell", "nell")["unread_messages"], 1)


@feature
def users_erased():
    tokens["eve"] = token(secret, "eve", iat=int(time.time()) - 5)
    channel = Channel(["alice", "eve"])
    channel.write("m1", "alice", receipt=True)
    channel.write("m2", "eve")
    channel.acknowledge("eve", ["m1"], note="seen by eve")
    hide("eve", delivered=True)
    equal(call("DELETE", "/v1/users/eve", None)["erased"], True)
    equal(call("DELETE", "/v1/users/eve", None)["erased"], True)
    equal([row["user"]["id"] for row in channel.rows(None)["read"]], ["alice"])
    equal(channel.status("m1", "alice")["member_count"], 0)
    equal(call("GET", "/v1/users/eve/channels", None)["channels"], [])
    settings = call("GET", "/v1/users/eve", None)["privacy_settings"]
    equal([settings[k]["enabled"] for k in ("read_receipts", "delivery_receipts")], [True, True])
    call("POST", channel.path + "/members", None, {"add": ["eve"]})
    # Tokens from before the erasure are invalid.
    for method, path, body in [
        ("POST", channel.path + "/read", {}),
        ("POST", channel.path + "/read?totals=true", {}),
        ("POST", channel.path + "/unread", {"message_id": "m1"}),
        ("POST", channel.path + "/receipts", {"message_ids": ["m1"]}),
        ("POST", "/v1/channels/delivered", {"latest_delivered_messages": [{"cid": channel.cid, "id": "m1"}]}),
        ("POST", "/v1/channels/read", {"read_by_channel": {channel.cid: ""}}),
        ("POST", "/v1/channels/read", {"all": True}),
        ("GET", channel.path + "/read-state", None),
        ("POST", channel.path + "/receipts/query", {"message_ids": ["m1"]}),
        ("GET", channel.path + "/messages/m1/status", None),
        ("GET", channel.path + "/messages/m1/readers", None),
        ("GET", channel.path + "/messages/m1/delivered", None),
        ("GET", channel.path + "/messages/m1/unread", None),
        ("GET", channel.path + "/messages/m1/members?user_ids=eve", None),
        ("GET", "/v1/users/eve/unread", None),
        ("GET", "/v1/users/eve/channels", None),
        ("GET", "/v1/users/eve", None),
        ("PUT", "/v1/users/eve", {"privacy_settings": {"read_receipts": {"enabled": False}}}),
    ]:
        equal(call(method, path, "eve", body, 401)["code"], "token_revoked", f"{method} {path}")
    # A user who returns under the same name has a token issued in or after the second of the erasure.
    tokens["eve"] = token(secret, "eve", iat=int(time.time()))
    equal(channel.row("eve", "eve")["unread_messages"], 0, "a user who returns under the name is new")
    revoked = call("GET", "/v1/users/eve", None)["revoke_tokens_before"]
    equal(hide("eve", read=True)["revoke_tokens_before"], revoked)
    tokens["eve"] = token(secret, "eve", iat=int(time.time()) - 3600)
    equal(channel.read("eve", "m1", 401)["code"], "token_revoked", "a new setting makes old tokens valid again")


failed = 0
for function in features:
    try:
        function()
        print("ok", function.__name__)
    except Exception as error:  # any error: the other features are still tested
        failed += 1
        where = traceback.extract_tb(error.__traceback__)[1].lineno
        print(f"FAILED {function.__name__} (line {where}): {error!r}"[:1000])
print(f"{len(features) - failed} of {len(features)} features")
sys.exit(1 if failed else 0)
