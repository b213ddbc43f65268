"""A member's own state, and the effect of a send on its sender.

Covers positions that a message does not move, one event for a send, muted channels, channels flagged unread,
mentions, and unread from a time on.

usage: own_marks.py BASE_URL JWT_SECRET_FILE
Prints "ok NAME" or "FAILED NAME: why" for each; exits 1 if one failed."""
import json
import sys
import threading
import traceback

import httpx
from access_token import token

base, secret_file = sys.argv[1:3]
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=15)


tokens = {}


def headers(as_user):
    """The headers of a user, or of the server where `as_user` is None."""
    if as_user not in tokens:
        tokens[as_user] = token(secret, as_user)
    return {"authorization": "Bearer " + tokens[as_user]}


def call(method, path, as_user, body=None, status=200):
    answer = client.request(method, path, headers=headers(as_user), json=body)
    assert answer.status_code == status, (method, path, body, answer.status_code, answer.text)
    return answer.json()


def equal(actual, expected, what=""):
    assert actual == expected, f"{what}: {actual} is not {expected}"


numbers = iter(range(1_000_000))


class Channel:
    """A channel of its own for each test."""

    def __init__(self, members, options=None):
        self.cid = f"messaging:own-marks-{next(numbers)}"
        self.path = "/v1/channels/" + self.cid
        call("PUT", self.path, None, {"members": members, "options": options or {}}, 201)

    def write(self, message, user, status=201, **fields):
        return call("POST", self.path + "/messages", None, {"id": message, "user_id": user, **fields}, status)

    def read(self, user, message=None, **fields):
        body = {"message_id": message, **fields} if message else fields
        return call("POST", self.path + "/read", user, body)["read"]

    def unread(self, user, status=200, **fields):
        answer = call("POST", self.path + "/unread", user, fields, status)
        return answer.get("read", answer)

    def own(self, user):
        return call("GET", self.path + "/read-state", user)["read"][0]

    def row(self, user, viewer):
        return next(row for row in call("GET", self.path + "/read-state", viewer)["read"] if row["user"]["id"] == user)

    def mute(self, user, is_muted=True):
        return call("PUT", f"{self.path}/members/{user}", user, {"muted": is_muted})["member"]


class Stream:
    """The events of one viewer, in order of arrival."""

    def __init__(self, as_user, query="", last=None):
        self.events, self.last, self.condition = [], None, threading.Condition()
        self.client = httpx.Client(http1=False, http2=True, base_url=base, timeout=httpx.Timeout(15, read=60))
        self.as_user, self.path = as_user, "/v1/events" + query
        self.headers = headers(as_user) | ({"last-event-id": last} if last else {})
        threading.Thread(target=self.run, daemon=True).start()
        if last is None:
            self.until(lambda: self.last is not None, "the stream's first id")

    def run(self):
        try:
            with self.client.stream("GET", self.path, headers=self.headers) as answer:
                assert answer.status_code == 200, answer.status_code
                for line in answer.iter_lines():
                    with self.condition:
                        if line.startswith("data: "):
                            self.events.append(json.loads(line[6:]))
                        elif line.startswith("id: "):
                            self.last = line[4:]
                        self.condition.notify_all()
        except httpx.HTTPError:
            pass

    def until(self, is_there, what, seconds=20):
        with self.condition:
            assert self.condition.wait_for(is_there, seconds), f"{self.as_user} did not get {what}: {self.events}"

    def message(self, id):
        """The event of a message, and the events before it."""
        def find():
            return next((event for event in self.events if event.get("message", {}).get("id") == id), None)

        self.until(lambda: find() is not None, f"of {id}")
        return find()

    def of(self, user, *types):
        with self.condition:
            return [
                event for event in self.events if event.get("user", {}).get("id") == user and event["type"] in types
            ]

    def find(self, type, **fields):
        def match():
            return next(
                (event for event in self.events if event["type"] == type and fields.items() <= event.items()), None
            )

        self.until(lambda: match() is not None, f"{type} {fields}")
        return match()


def moves(event):
    return event["moves_position"]


def totals(user):
    answer = call("GET", f"/v1/users/{user}/unread", user)
    badge = call("POST", "/v1/unread", None, {"user_ids": [user]})["users"][0]
    names = ["total_unread_count", "unread_channels", "unread_threads", "unread_mentions"]
    equal([answer[name] for name in names], [badge[name] for name in names], "totals and badge")
    return tuple(answer[name] for name in names[:3]), answer["channels"]


def a_message_leaves_its_senders_position_alone():
    room = Channel(["alice", "bob"])
    room.write("m1", "alice")
    room.read("bob", "m1")
    room.unread("bob", message_id="m1")
    before = room.own("bob")
    room.write("m2", "bob", moves_position=False)
    after = room.own("bob")
    equal(after, before, "bob's row")
    equal(after["unread_messages"], 1, "own messages are not unread")
    equal(room.own("alice")["unread_messages"], 1, "alice")
    room.write("m3", "bob")
    equal((room.own("bob")["last_read_message_id"], room.own("bob")["unread_messages"]), ("m3", 0), "a send that moves")
    room.write("m4", "bob", 400, moves_position="no")
    room.write("r1", "alice", parent_id="m1")
    room.write("r2", "bob", parent_id="m1", moves_position=False)
    row = call("POST", room.path + "/read", "bob", {"thread_id": "m1"})["read"]
    equal(row["unread_messages"], 0, "the thread")


def a_send_is_one_event():
    room = Channel(["ann", "ben", "cat"])
    room.write("m1", "ben")
    streams = {user: Stream(user, f"?channels={room.cid}") for user in ("ann", "ben", "cat")}
    first = streams["cat"].last
    room.write("m2", "ann")
    for user, stream in streams.items():
        equal(moves(stream.message("m2")), {"read": True, "delivered": True}, user)
    call("PUT", "/v1/users/ben", "ben", {"privacy_settings": {"read_receipts": {"enabled": False}}})
    room.write("m3", "ben")
    equal(moves(streams["ann"].message("m3")), {"read": False, "delivered": True}, "hidden from ann")
    equal(moves(streams["ben"].message("m3")), {"read": True, "delivered": True}, "ben's own device")
    room.write("m4", "ann", moves_position=False)
    equal(moves(streams["cat"].message("m4")), {"read": False, "delivered": False}, "unchanged")
    room.write("r1", "cat", parent_id="m2")
    reply = streams["ann"].message("r1")
    equal((moves(reply), reply["thread_id"]), ({"read": True, "delivered": True}, "m2"), "a reply")
    room.write("m5", "cat")
    for user, stream in streams.items():
        stream.message("m5")
        for sender in ("ann", "cat"):
            equal(stream.of(sender, "message.read", "message.delivered"), [], f"{user} of {sender}")
    # After a gap the latest event of each sender gives the sender's position, and the sums match.
    resumed = Stream("cat", f"?channels={room.cid}", first)
    resumed.message("m5")
    positions = {}
    for event in resumed.events:
        if event["type"] == "message.new" and "thread_id" not in event:
            if moves(event)["read"]:
                positions[event["user"]["id"]] = event["message"]["seq"]
        elif event["type"] in ("message.read", "read_state.changed") and "thread_id" not in event:
            positions[event["user"]["id"]] = event["last_read_seq"]
    equal(positions.get("ann"), room.row("ann", "cat")["last_read_seq"], "ann after a gap")
    equal(positions.get("cat"), room.own("cat")["last_read_seq"], "cat after a gap")


def counts_visible_to_the_sender_hide_positions():
    room = Channel(["dan", "eve"], {"counts_visible_to": "sender"})
    room.write("m1", "dan")
    eve, server = Stream("eve", f"?channels={room.cid}"), Stream(None, f"?channels={room.cid}")
    room.write("m2", "dan")
    equal(moves(eve.message("m2")), {"read": False, "delivered": False}, "R10")
    equal(moves(server.message("m2")), {"read": True, "delivered": True}, "a server")


def a_muted_channel_is_in_no_total():
    room = Channel(["fay", "gus"])
    room.write("m1", "gus")
    room.write("r0", "fay", parent_id="m1")
    room.write("r1", "gus", parent_id="m1")
    before, listed = totals("fay")
    equal((before, [entry["cid"] for entry in listed]), ((1, 1, 1), [room.cid]), "before")
    stream = Stream("fay", "?totals=true")
    equal(room.mute("fay")["muted"], True, "muted")
    stream.find("notification.totals", total_unread_count=0, unread_channels=0, unread_threads=0)
    equal(totals("fay"), ((0, 0, 0), []), "muted")
    equal(room.own("fay")["unread_messages"], 1, "the own row")
    room.unread("fay")
    equal(totals("fay")[0], (0, 0, 0), "the flag is in no total either")
    # No other member, no other field, and no join.
    call("PUT", room.path + "/members/gus", "fay", {"muted": True}, 403)
    call("PUT", room.path + "/members/fay", "fay", {"role": "admin"}, 403)
    answer = client.put(room.path + "/members/hal", headers=headers("hal"), json={"muted": True})
    assert answer.status_code in (403, 404), answer.text
    assert "hal" not in str(call("GET", room.path + "/read-state", None)), "hal has joined"
    call("PUT", room.path + "/members/fay", "fay", {"muted": "yes"}, 400)
    equal(call("PUT", room.path + "/members/fay", None, {"role": "admin"})["member"]["muted"], True, "a role leaves it")
    joined = call("PUT", room.path + "/members/hal", None, {"muted": True, "role": "guest"}, 201)["member"]
    equal((joined["role"], joined["muted"]), ("guest", True), "a server adds")
    for viewer, shown in (("", True), ("?user_id=fay", True), ("?user_id=gus", False)):
        members = call("GET", room.path + "/members" + viewer, None)["members"]
        equal(
            [entry.get("muted") for entry in members if entry["user"]["id"] == "fay"], [True if shown else None], viewer
        )
    room.read("fay")
    room.mute("fay", False)
    room.write("m2", "gus")
    equal(totals("fay")[0], (1, 1, 1), "not muted any more")


def a_channel_is_flagged_unread_as_a_whole():
    room = Channel(["ida", "jon"])
    room.write("m1", "jon")
    read = room.read("ida", "m1")
    equal(read["marked_unread"], False, "read")
    ida, jon = Stream("ida"), Stream("jon")
    flagged = room.unread("ida")
    equal((flagged["marked_unread"], flagged["last_read_seq"], flagged["unread_messages"]), (True, 1, 0), "flagged")
    equal(flagged["unread_epoch"], read["unread_epoch"] + 1, "the epoch")
    ida.find("notification.mark_unread", cid=room.cid, marked_unread=True)
    answer, listed = totals("ida")
    equal((answer, [entry["marked_unread"] for entry in listed]), ((0, 1, 0), [True]), "totals")
    # No other user's.
    for viewer in ("jon", None):
        assert "marked_unread" not in room.row("ida", viewer), viewer
    equal(room.read("ida", "m1", unread_epoch=read["unread_epoch"])["marked_unread"], True, "a stale device")
    equal(
        room.read("ida", "m1", unread_epoch=flagged["unread_epoch"])["marked_unread"],
        False,
        "a read that moves nothing",
    )
    ida.find("notification.mark_read", cid=room.cid, marked_unread=False)
    room.unread("ida")
    room.write("m2", "ida", moves_position=False)
    equal(room.own("ida")["marked_unread"], True, "unchanged")
    room.write("m3", "ida")
    equal(room.own("ida")["marked_unread"], False, "cleared by a send")
    room.unread("ida")
    call("POST", "/v1/channels/read", "ida", {"read_by_channel": {room.cid: ""}})
    equal(room.own("ida")["marked_unread"], False, "cleared by a read of many")
    call("PUT", room.path, None, {"options": {"mark_unread": "off"}})
    equal(room.unread("ida", 403)["code"], "mark_unread_off", "off")
    jon.message("m3")
    equal(
        jon.of("ida", "notification.mark_read", "notification.mark_unread", "read_state.changed"),
        [],
        "jon gets no event",
    )
    call("POST", room.path + "/unread", "ida", None, 400)


def mentions_are_counted():
    room = Channel(["kim", "leo", "mia"])
    room.write("m1", "leo", mentions=["kim", "leo", "nobody-here"])
    room.write("m2", "leo", mentions="all")
    room.write("m3", "leo", mentions="all", silent=True)
    row = room.own("kim")
    equal((row["unread_messages"], row["unread_mentions"]), (2, 2), "kim's row")
    equal(room.own("mia")["unread_mentions"], 1, "mia was mentioned only with all")
    equal(room.own("leo")["unread_mentions"], 0, "never the sender")
    assert "unread_mentions" not in room.row("kim", None), "a server's view of another's row"
    room.write("r1", "leo", parent_id="m1", mentions=["mia"])

    def mentions(user):
        answer = call("GET", f"/v1/users/{user}/unread", user)
        badge = call("POST", "/v1/unread", None, {"user_ids": [user]})["users"][0]
        equal(badge["unread_mentions"], answer["unread_mentions"], "the badge")
        return answer["unread_mentions"], sum(entry["unread_mentions"] for entry in answer["channels"])

    equal(mentions("kim"), (2, 2), "kim")
    equal(mentions("mia"), (2, 2), "mia is in the thread")
    equal(room.own("mia")["unread_mentions"], 2, "with the thread's")
    stream = Stream("kim", "?totals=true")
    equal(room.read("kim", "m1")["unread_mentions"], 1, "read one")
    stream.find("notification.totals", unread_mentions=1)
    read = call("POST", room.path + "/read?totals=true", "kim", {})
    equal((read["unread_mentions"], read["read"]["unread_mentions"]), (0, 0), "read all, with totals")
    room.mute("mia")
    equal(mentions("mia"), (0, 0), "muted")
    equal(room.own("mia")["unread_mentions"], 2, "the own row")
    call("DELETE", room.path + "/messages/m2", None)
    equal(room.own("mia")["unread_mentions"], 1, "not in deleted messages")
    for wrong in ("everyone", ["with\u0007bell"], [1], 5, ["u"] * 101):
        room.write("m9", "leo", 400, mentions=wrong)


def unread_from_a_time_on():
    room = Channel(["ned", "ola"])
    for minute in range(5):
        room.write(f"m{minute + 1}", "ola", created_at=f"2026-01-31T12:0{minute}:00.000Z")
    room.read("ned")
    row = room.unread("ned", message_timestamp="2026-01-31T12:02:00Z")
    equal((row["first_unread_message_id"], row["unread_messages"]), ("m3", 3), "at the time")
    call("DELETE", room.path + "/messages/m4", None)
    row = room.unread("ned", message_timestamp="2026-01-31T12:02:30Z")
    equal((row["first_unread_message_id"], row["unread_messages"]), ("m5", 1), "after it, and not deleted")
    equal(room.unread("ned", message_timestamp="2026-02-01T00:00:00Z"), row, "none: no change")
    room.unread("ned", 400, message_timestamp="yesterday")
    room.unread("ned", 400, message_timestamp="2026-01-31T12:00:00Z", message_id="m1")
    room.write("r1", "ola", parent_id="m1", created_at="2026-01-31T13:00:00Z")
    call("POST", room.path + "/read", "ned", {"thread_id": "m1"})
    thread = room.unread("ned", thread_id="m1", message_timestamp="2026-01-31T12:30:00Z")
    equal(thread["first_unread_message_id"], "r1", "in a thread")


def a_read_of_many_knows_epochs():
    rooms = [Channel(["pia", "quin"]) for _ in range(2)]
    for room in rooms:
        room.write("m1", "quin")
        room.read("pia")
        room.unread("pia", message_id="m1")
    stale = {"read_by_channel": {room.cid: "" for room in rooms}, "unread_epochs": {rooms[0].cid: 0}}
    results = call("POST", "/v1/channels/read", "pia", stale)["results"]
    equal([result["ok"] for result in results], [True, True], "both succeed")
    equal([room.own("pia")["unread_messages"] for room in rooms], [1, 0], "a stale epoch leaves the marker")
    current = stale | {"unread_epochs": {rooms[0].cid: rooms[0].own("pia")["unread_epoch"]}}
    call("POST", "/v1/channels/read", "pia", current)
    equal(rooms[0].own("pia")["unread_messages"], 0, "the epoch in force")
    # Of a key that is given twice the last value counts, as everywhere in JSON.
    rooms[0].unread("pia", message_id="m1")
    cid, epoch = rooms[0].cid, rooms[0].own("pia")["unread_epoch"]
    twice = f'{{"read_by_channel":{{"{cid}":""}},"unread_epochs":{{"{cid}":0,"{cid}":{epoch}}}}}'
    known = headers("pia") | {"content-type": "application/json"}
    assert client.post("/v1/channels/read", headers=known, content=twice).status_code == 200
    equal(rooms[0].own("pia")["unread_messages"], 0, "the last of two epochs")
    call("POST", "/v1/channels/read", "pia", stale | {"unread_epochs": {rooms[0].cid: -1}}, 400)
    call("POST", "/v1/channels/read", "pia", stale | {"unread_epochs": {"messaging:elsewhere": 0}}, 400)
    call("POST", "/v1/channels/read", "pia", {"all": True, "unread_epochs": {rooms[0].cid: 0}}, 400)


POINTS = [
    a_message_leaves_its_senders_position_alone,
    a_send_is_one_event,
    counts_visible_to_the_sender_hide_positions,
    a_muted_channel_is_in_no_total,
    a_channel_is_flagged_unread_as_a_whole,
    mentions_are_counted,
    unread_from_a_time_on,
    a_read_of_many_knows_epochs,
]
failures = 0
for point in POINTS:
    name = point.__name__
    try:
        point()
        print("ok", name, flush=True)
    except Exception as problem:
        failures += 1
        print(f"FAILED {name}: {problem}", flush=True)
        traceback.print_exc()
sys.exit(1 if failures else 0)
