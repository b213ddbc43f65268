"""Hidden history (R6) over HTTP and events.

Two channels differ only before a new member joined. Every route answers that member the same in both, and so
do events, live and after a resume.

usage: history_routes.py BASE_URL JWT_SECRET_FILE"""
import json
import re
import sys
import threading
import time

import httpx
from access_token import token

base, secret_file = sys.argv[1:]
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=60)
CHANNELS = {"A": "messaging:history-a", "B": "messaging:history-b"}
# The same number of messages and replies in both: sequence numbers are absolute, and are not secret.
OLD_COUNT, OLD_REPLIES = 7, 2
PLACES = {"p1": 3, "p2": 6}
LONGEST_WAIT = 60
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def request(method, path, user, body=None):
    return client.request(method, path, headers={"authorization": "Bearer " + token(secret, user)}, json=body)


def expect(method, path, user, body=None):
    answer = request(method, path, user, body)
    assert answer.status_code in (200, 201), (method, path, user, body, answer.status_code, answer.text)
    return answer.json()


def old_id(which, number):
    """The id of an old message. Two of them have the same id in both channels, for later replies; all others
    differ."""
    return next((name for name, place in PLACES.items() if place == number), f"old-{which}-{number}")


def old_reply(which, number):
    return f"old-reply-{which}-{number}"


class Stream:
    """The events of dave's stream."""

    def __init__(self, query=""):
        self.events, self.ids, self.failure = [], [], None
        self.lines = threading.Condition()
        self.thread = threading.Thread(target=self.run, args=(query,), daemon=True)
        self.thread.start()

    def run(self, query):
        try:
            with httpx.Client(http1=False, http2=True, base_url=base, timeout=LONGEST_WAIT) as own:
                with own.stream(
                    "GET", "/v1/events" + query, headers={"authorization": "Bearer " + token(secret, "dave")}
                ) as answer:
                    assert answer.status_code == 200, (answer.status_code, query, answer.read())
                    with self.lines:
                        self.events.append({"type": "open"})
                        self.lines.notify_all()
                    for line in answer.iter_lines():
                        line = line.rstrip()
                        with self.lines:
                            if line.startswith("data: "):
                                self.events.append(json.loads(line[6:]))
                            elif line.startswith("id: "):
                                self.ids.append(line[4:])
                            self.lines.notify_all()
        except Exception as error:  # The main thread reports the missing event.
            self.failure = error

    def wait(self, what, missing):
        """Waits until `missing` of the stream is empty."""
        end = time.monotonic() + LONGEST_WAIT
        with self.lines:
            while lacking := missing(self):
                left = end - time.monotonic()
                assert left > 0 and self.lines.wait(
                    left
                ), f"{what} did not arrive within {LONGEST_WAIT} s: {lacking}, {self.failure}, {self.events[-5:]}"


def of_channel(stream, cid):
    return [event for event in stream.events if event.get("cid") == cid]


def was_reset(stream):
    return any(event["type"] == "stream.reset" for event in stream.events)


def missing(stream, types=frozenset()):
    """What dave's stream has to have about each channel, and does not have yet."""
    left = set()
    for which, cid in CHANNELS.items():
        events = of_channel(stream, cid)
        new = {event["message"]["id"] for event in events if event["type"] == "message.new"}
        expected = {"member.added", "message.new", "read_state.changed", "channel.updated", "message.status", *types}
        left |= {
            (which, name)
            for name in ({"n1", "n2", "r-new", "r-first", "last"} - new)
            | (expected - {event["type"] for event in events})
        }
    return left


def difference(stream, joined):
    """The events that only one of the two channels had. The number of repeated events depends on the batches, and a
    whole row stands for its positions."""
    sets = [
        {
            normalized(event, which, joined[which])
            for event in of_channel(stream, cid)
            if event["type"] not in ("message.read", "message.delivered")
        }
        for which, cid in CHANNELS.items()
    ]
    return sets[0] ^ sets[1]


def build(which):
    """Builds the history before dave joins. The channels differ in everything except the number of messages
    and replies, and the thread participants, which later history depends on."""
    path = "/v1/channels/" + CHANNELS[which]
    expect(
        "PUT",
        path,
        None,
        {"members": ["alice", "bob", "carol", "frank"], "options": {"history": "hidden", "mark_unread": "public"}},
    )
    for number in range(1, OLD_COUNT + 1):
        sender = "alice" if number in PLACES.values() else ("alice", "bob")[number % 2] if which == "A" else "carol"
        expect(
            "POST", path + "/messages", None, {"id": old_id(which, number), "user_id": sender, "receipt": which == "A"}
        )
    for number in range(1, OLD_REPLIES + 1):
        expect(
            "POST",
            path + "/messages",
            None,
            {"id": old_reply(which, number), "user_id": "bob", "parent_id": "p1", "silent": which == "A"},
        )
    if which == "A":
        expect(
            "POST",
            path + "/receipts",
            "carol",
            {"message_ids": [old_id("A", n) for n in range(1, 5)], "note": "a secret note"},
        )
        expect("POST", path + "/read", "bob", {"message_id": old_id("A", 5)})
        expect("POST", path + "/unread", "bob", {"message_id": old_id("A", 2)})
        expect("POST", path + "/read", "alice", {"thread_id": "p1"})
        expect("DELETE", f"{path}/messages/{old_id('A', 2)}", None)
        # A member who leaves and joins again.
        expect("POST", path + "/members", None, {"remove": ["frank"]})
        expect("POST", path + "/members", None, {"add": ["frank"]})
    else:
        expect("POST", path + "/truncate", None, {"before": old_id("B", 2)})
        expect(
            "POST",
            "/v1/channels/delivered",
            "alice",
            {"latest_delivered_messages": [{"cid": CHANNELS["B"], "id": old_id("B", 4)}]},
        )
        expect("POST", path + "/members", None, {"remove": ["frank"]})
        expect("POST", path + "/members", None, {"add": ["frank"]})


def go_on(which):
    """Applies the history after dave has joined, the same in both; much of it is about old messages."""
    cid = CHANNELS[which]
    path = "/v1/channels/" + cid
    expect("POST", path + "/messages", None, {"id": "n1", "user_id": "alice", "receipt": True})
    expect("POST", path + "/messages", None, {"id": "r-new", "user_id": "alice", "parent_id": "p1"})
    expect("POST", path + "/messages", None, {"id": "r-first", "user_id": "bob", "parent_id": "p2"})
    expect("POST", path + "/messages", None, {"id": "n2", "user_id": "dave", "receipt": True})
    # A member who joins again counts as new too.
    refused = request("POST", path + "/read", "frank", {"message_id": old_id(which, 4)})
    assert refused.json()["code"] == "message_not_found", refused.text
    expect("POST", path + "/read", "carol", {"message_id": old_id(which, 6)})
    expect(
        "POST",
        "/v1/channels/delivered",
        "carol",
        {"latest_delivered_messages": [{"cid": cid, "id": old_id(which, 7)}, {"cid": cid, "id": old_reply(which, 2)}]},
    )
    expect("POST", path + "/read", "carol", {"message_id": old_reply(which, 1)})
    request(
        "POST",
        path + "/receipts",
        "bob",
        {"message_ids": [old_id(which, 6), old_id(which, 7)], "note": "another secret note"},
    )
    expect("POST", path + "/read", "bob", {"message_id": "n1"})
    expect("POST", path + "/unread", "bob", {"message_id": old_id(which, 4)})
    expect("DELETE", f"{path}/messages/{old_id(which, 5)}", None)
    expect("DELETE", f"{path}/messages/{old_reply(which, 1)}", None)
    for shown in (False, True):
        for user in ("bob", "carol"):
            settings = {"read_receipts": {"enabled": shown}, "delivery_receipts": {"enabled": shown}}
            expect("PUT", f"/v1/users/{user}", user, {"privacy_settings": settings})
    expect("PUT", path, None, {"options": {"status_rule": "all"}})
    expect("POST", path + "/receipts", "carol", {"message_ids": ["n1"], "note": "for all to see"})
    expect("POST", path + "/read", "carol", {"message_id": "n2"})
    expect("POST", path + "/read", "alice", {"thread_id": "p1", "message_id": "r-new"})
    expect("POST", path + "/truncate", None, {"before": "p1"})
    expect("POST", path + "/members", None, {"add": ["erin"]})


def ids(which):
    """All ids that ever existed in either channel, so that queries name old ids of this channel and unknown
    ones."""
    return [old_id(w, n) for w in "AB" for n in range(1, OLD_COUNT + 1)] + [
        old_reply(w, n) for w in "AB" for n in range(1, OLD_REPLIES + 1)
    ]


def ask(which, viewer, found):
    """Sends every query of a member, and commands without an effect."""
    cid = CHANNELS[which]
    path = "/v1/channels/" + cid
    user = viewer or None
    named = {} if viewer else {"user_id": "dave"}
    query = "" if viewer else "&user_id=dave"
    messages = sorted(set(ids(which))) + ["n1", "n2", "r-new", "r-first", "never"]

    def note(name, method, where, body=None):
        answer = request(method, where, user, body)
        headers = {
            key: value for key, value in answer.headers.items() if key not in ("date", "x-request-id", "content-length")
        }
        document = answer.json()
        document.pop("request_id", None)
        if name == "unread":
            # Of all of dave's channels: this one.
            document = [entry for entry in document["channels"] if entry["cid"] == cid]
        elif name.endswith("with totals"):
            for total in [key for key in document if key.startswith(("total_", "unread_"))]:
                document.pop(total)
        found[f"{viewer or 'server for dave'}: {name}"] = (answer.status_code, headers, document)

    for limit in (1, 100):
        cursor = ""
        for page in range(12):
            note(
                f"read state, limit {limit}, page {page}",
                "GET",
                f"{path}/read-state?limit={limit}&cursor={cursor}{query}",
            )
            cursor = found[f"{viewer or 'server for dave'}: read state, limit {limit}, page {page}"][2].get("next", "")
            if not cursor:
                break
    note("statuses", "POST", path + "/receipts/query", {"message_ids": messages, **named})
    note("unread", "GET", "/v1/users/dave/unread")
    for message in messages:
        at = f"{path}/messages/{message}"
        note(f"status of {message}", "GET", f"{at}/status?{query}")
        note(f"members of {message}", "GET", f"{at}/members?user_ids=alice,bob,carol,dave,erin{query}")
        for which_list in ("readers", "delivered", "unread"):
            for order in ("joined", "time"):
                note(f"{which_list} of {message} by {order}", "GET", f"{at}/{which_list}?order={order}{query}")
        if message in ids(which):
            note(f"read {message}", "POST", path + "/read", {"message_id": message, **named})
            note(f"unread {message}", "POST", path + "/unread", {"message_id": message, **named})
            note(f"read {message} with totals", "POST", path + "/read?totals=true", {"message_id": message, **named})
            note(f"read {message} in p1", "POST", path + "/read", {"message_id": message, "thread_id": "p1", **named})
            note(
                f"unread {message} in p1", "POST", path + "/unread", {"message_id": message, "thread_id": "p1", **named}
            )
            entries = [{"cid": cid, "id": message}, {"cid": cid, "id": message, "parent_id": "p1"}]
            note(
                f"deliver {message}", "POST", "/v1/channels/delivered", {"latest_delivered_messages": entries, **named}
            )
            note(
                f"read {message} in a batch", "POST", "/v1/channels/read", {"read_by_channel": {cid: message}, **named}
            )
            note(
                f"acknowledge {message}",
                "POST",
                path + "/receipts",
                {"message_ids": [message], "note": "mine", **named},
            )
            if not viewer:
                note(
                    f"push {message}",
                    "POST",
                    "/v1/push/acks",
                    {"acks": [{"cid": cid, "message_id": message, "user_id": "dave"}]},
                )
        # A thread under an old message without a new reply does not exist.
        if message in ids(which) and message not in PLACES:
            note(f"read the thread of {message}", "POST", path + "/read", {"thread_id": message, **named})
            note(f"unread the thread of {message}", "POST", path + "/unread", {"thread_id": message, **named})


def normalized(value, which, joined):
    """An answer without the expected differences: the channel's name, and times except their side of the
    join."""
    text = (
        json.dumps(value, sort_keys=True).replace(CHANNELS[which], "CID").replace(CHANNELS[which].split(":")[1], "ID")
    )

    def side(match):
        return "JOIN" if match[0] == joined else "AFTER" if match[0] > joined else "BEFORE"

    return TIME.sub(side, text)


def check_event(event, which, joined, what):
    """Checks that an event has no name, note, number or time from before the join."""
    text = json.dumps(event)
    assert "old-" not in text and "secret" not in text, f"{what}: {event}"
    assert all(
        at >= joined for at in TIME.findall(json.dumps({k: v for k, v in event.items() if k != "channel"}))
    ), f"{what}, joined {joined}: {event}"
    own = event.get("user", {}).get("id") == "dave"
    first = (OLD_REPLIES if event.get("thread_id") == "p1" else 0 if "thread_id" in event else OLD_COUNT)
    for name in ("last_read", "last_delivered"):
        number, id = event.get(name + "_seq"), event.get(name + "_message_id")
        if number is None or own and number == 0:
            continue
        assert (
            number > first or number == first and id is None or event["type"] == "member.added" and number == 0
        ), f"{what}: {event}"
    for name in ("seq", "from_seq", "to_seq"):
        assert event.get(name, first + 1) > first, f"{what}: {event}"
    if "message" in event:
        assert event["message"]["seq"] > first, f"{what}: {event}"


def main():
    expect("PUT", "/v1/channels/messaging:dave-own", None, {"members": ["dave"]})
    live = Stream()
    live.wait("the stream", lambda stream: not stream.events)
    expect("POST", "/v1/channels/messaging:dave-own/messages", None, {"id": "first", "user_id": "robot"})
    live.wait("an id", lambda stream: not stream.ids)
    since = live.ids[0]
    joined = {}
    for which in CHANNELS:
        build(which)
    for which, cid in CHANNELS.items():
        expect("POST", f"/v1/channels/{cid}/members", None, {"add": ["dave"]})
        rows = expect("GET", f"/v1/channels/{cid}/read-state", "dave")["read"]
        joined[which] = rows[0]["last_read"]
        assert (
            rows[0]["user"]["id"] == "dave" and rows[0]["joined_seq"] == OLD_COUNT and rows[0]["last_read_seq"] == 0
        ), rows[0]
        assert len(rows) == 5, rows
        for row in rows[1:]:
            shown = (
                row["last_read_seq"],
                row["last_delivered_seq"],
                row["last_read"],
                row["last_delivered_at"],
                row["joined_seq"],
            )
            assert shown == (OLD_COUNT, OLD_COUNT, joined[which], joined[which], OLD_COUNT), row
            assert "last_read_message_id" not in row and "last_delivered_message_id" not in row, row
        # Marking everything read, where nothing exists, does nothing.
        row = expect("POST", f"/v1/channels/{cid}/read", "dave")["read"]
        assert row["last_read_seq"] == 0 and "last_read_message_id" not in row, row
    for which in CHANNELS:
        go_on(which)
    found = {which: {} for which in CHANNELS}
    for which, cid in CHANNELS.items():
        for viewer in ("dave", ""):
            ask(which, viewer, found[which])
    # The threads with replies since the join are there, with only those replies.
    for which, cid in CHANNELS.items():
        path = "/v1/channels/" + cid
        for name, where, body in [
            ("thread unread", "/unread", {"thread_id": "p1"}),
            ("thread read", "/read", {"thread_id": "p1"}),
            ("thread unread", "/unread", {"thread_id": "p1"}),
            ("first thread read", "/read", {"thread_id": "p2", "message_id": "r-first"}),
            ("read", "/read", {"message_id": "n2"}),
            ("unread", "/unread", {"message_id": "n1"}),
        ]:
            answer = request("POST", path + where, "dave", body)
            found[which][f"{name}, {len(found[which])}"] = (
                answer.status_code,
                {},
                {k: v for k, v in answer.json().items() if k != "request_id"},
            )
        tickets = [
            {"cid": cid, "message_id": m, "user_id": "dave"}
            for m in (
                old_id(which, 1),
                old_id(which, 5),
                old_reply(which, 1),
                old_reply(which, 2),
                "never",
                "n1",
                "r-new",
            )
        ]
        made = expect("POST", "/v1/push/tickets", None, {"tickets": tickets})["tickets"]
        codes = [ticket.get("code") if isinstance(ticket, dict) else "made" for ticket in made]
        assert codes == ["message_not_found"] * 5 + ["made"] * 2, codes
    compared = 0
    assert found["A"].keys() == found["B"].keys()
    for name in found["A"]:
        texts = [normalized(found[which][name], which, joined[which]) for which in CHANNELS]
        assert texts[0] == texts[1], f"{name}:\n{texts[0]}\n{texts[1]}"
        for text in texts:
            # The answer to `statuses` repeats the requested ids.
            document = json.loads(text)[2]
            statuses = (
                [entry for entry in document["statuses"] if "code" not in entry] if name.endswith(": statuses") else []
            )
            assert "BEFORE" not in text and "secret" not in text, f"{name}: {text}"
            assert all("old-" not in json.dumps(entry) for entry in statuses), f"{name}: {statuses}"
            if (
                "statuses" not in name
                and "in a batch" not in name
                and "deliver" not in name
                and "acknowledge" not in name
            ):
                assert "old-" not in text, f"{name}: {text}"
        compared += 1
    for kind in ("status of", "readers of", "members of", "read ", "unread "):
        status, headers, document = found["A"][
            f"dave: {kind}{' ' if not kind.endswith(' ') else ''}old-A-2{' by joined' if kind == 'readers of' else ''}"
        ]
        assert (status, document["code"], headers.get("retry-after")) == (404, "message_not_found", "1"), (
            kind,
            status,
            headers,
            document,
        )

    # Events: the live stream, opened before the join, and one that resumes from long before it. A resume sends a
    # channel's own events first, then those of its threads: the last message is not the last event.
    for which, cid in CHANNELS.items():
        expect("POST", f"/v1/channels/{cid}/messages", None, {"id": "last", "user_id": "alice"})
    resumed = Stream("?since=" + since)
    live.wait(
        "all events on the live stream", lambda stream: not was_reset(stream) and missing(stream, {"message.read"})
    )
    resumed.wait(
        "all events, the same in both channels, on the resumed stream",
        lambda stream: not was_reset(stream) and (missing(stream) or difference(stream, joined)),
    )
    event_count = 0
    for name, stream in (("live", live), ("resumed", resumed)):
        # After a reset, as when a busy machine cuts the gateway's connection to the store, the client queries its
        # state instead: events from before it may be missing.
        if was_reset(stream):
            print(f"the {name} stream was reset", file=sys.stderr)
        for which, cid in CHANNELS.items():
            for event in of_channel(stream, cid):
                check_event(event, which, joined[which], f"{name} {which}")
                event_count += 1

    # Controls: an old member of each channel sees the difference, and so does a server that names no user.
    for viewer in ("alice", None):
        texts = [
            normalized(expect("GET", f"/v1/channels/{cid}/read-state", viewer), which, joined[which])
            for which, cid in CHANNELS.items()
        ]
        assert texts[0] != texts[1] and "BEFORE" in texts[0], f"{viewer} sees no difference: the test compares nothing"
        for which, cid in CHANNELS.items():
            status = expect("GET", f"/v1/channels/{cid}/messages/{old_id(which, 7)}/status", viewer)
            assert status["seq"] == 7, status
    notes = expect("GET", f"/v1/channels/{CHANNELS['A']}/messages/{old_id('A', 4)}/readers", "alice")
    assert "a secret note" in json.dumps(notes), "the note is missing"
    print(f"ok {compared} answers and {event_count} events compared")


main()
