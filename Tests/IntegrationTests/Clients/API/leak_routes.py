"""The actions of a hidden user change no other user's answers, on any route.

The script compares all users' views of a channel before and after.

usage: leak_routes.py BASE_URL JWT_SECRET_FILE SEED CHANNELS"""
import datetime
import random
import sys
import time

import httpx
from access_token import token

base, secret_file, seed, channels = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
secret = open(secret_file, "rb").readline().rstrip(b"\n")
client = httpx.Client(http1=False, http2=True, base_url=base, timeout=20)
draw = random.Random(seed)
people = ["alice", "bob", "carol", "dave"]
tokens = {}


def call(method, path, user, body=None):
    if user not in tokens:
        tokens[user] = token(secret, user)
    answer = client.request(method, path, headers={"authorization": "Bearer " + tokens[user]}, json=body)
    document = answer.json()
    document.pop("request_id", None)
    return answer.status_code, document


def expect(method, path, user, body=None):
    status, document = call(method, path, user, body)
    assert status in (200, 201), (method, path, user, status, document)
    return document


def views(path, messages):
    """Every query of the channel by users other than the hidden one, and by the server for each of them."""
    found = {}
    for viewer, on_behalf in [(p, "") for p in people] + [(None, ""), (None, "alice")]:
        extra = f"&user_id={on_behalf}" if on_behalf else ""

        def ask(name, method, where, body=None):
            found[(viewer, on_behalf, name)] = call(method, where, viewer, body)

        ask("channel", "GET", path + ("" if viewer else f"?{extra}"))
        for limit in (1, 100):
            cursor = ""
            for page in range(12):
                status, document = call("GET", f"{path}/read-state?limit={limit}&cursor={cursor}{extra}", viewer)
                # A server sees every user's own unread details, the hidden user's too.
                for row in document.get("read", []):
                    if viewer is None and row["user"]["id"] == "ghost":
                        for field in ("unread_messages", "first_unread_message_id", "unread_epoch"):
                            row.pop(field, None)
                found[(viewer, on_behalf, "read-state", limit, page)] = (status, document)
                cursor = document.get("next", "")
                if not cursor:
                    break
        body = {"message_ids": messages + ["missing"], **({"user_id": on_behalf} if on_behalf else {})}
        ask("statuses", "POST", f"{path}/receipts/query", body)
        for message in messages:
            where = f"{path}/messages/{message}"
            ask("status " + message, "GET", f"{where}/status?{extra}")
            ask("members " + message, "GET", f"{where}/members?user_ids=ghost,{','.join(people)}{extra}")
            for which in ("readers", "delivered", "unread"):
                for order in ("joined", "time"):
                    for limit in (1, 100):
                        cursor = ""
                        for page in range(8):
                            status, document = call(
                                "GET", f"{where}/{which}?order={order}&limit={limit}&cursor={cursor}{extra}", viewer
                            )
                            found[(viewer, on_behalf, which, message, order, limit, page)] = (status, document)
                            cursor = document.get("next", "")
                            if not cursor:
                                break
    return found


def act_in_thread(path, parent, replies, user):
    """Moves the user's own positions in a thread, which they may not have joined yet; sometimes by a reply's
    id alone."""
    reply = draw.choice(replies)
    named = {"thread_id": parent} if draw.random() < 0.5 else {}
    kind = draw.randrange(4)
    if kind == 0:
        expect("POST", path + "/read", user, {"thread_id": parent})
    elif kind == 1:
        expect("POST", path + "/read", user, {"message_id": reply, **named})
    elif kind == 2:
        call("POST", path + "/unread", user, {"message_id": reply, **named})
    else:
        entry = {"cid": path.split("/")[-1], "id": reply, **({"parent_id": parent} if named else {})}
        expect("POST", "/v1/channels/delivered", user, {"latest_delivered_messages": [entry]})


def act(path, messages, user):
    """Moves the user's own positions or acknowledges a message."""
    message = draw.choice(messages)
    kind = draw.randrange(5)
    if kind == 0:
        expect("POST", path + "/read", user, {"message_id": message})
    elif kind == 1:
        expect(
            "POST",
            "/v1/channels/delivered",
            user,
            {"latest_delivered_messages": [{"cid": path.split("/")[-1], "id": message}]},
        )
    elif kind == 2:
        call("POST", path + "/unread", user, {"message_id": message})
    elif kind == 3:
        expect("POST", path + "/receipts", user, {"message_ids": messages, "note": f"note {draw.random()}"})
    else:
        expect("POST", "/v1/channels/read", user, {"read_by_channel": {path.split("/")[-1]: ""}})


def privacy(shown):
    settings = {"read_receipts": {"enabled": shown}, "delivery_receipts": {"enabled": shown}}
    expect("PUT", "/v1/users/ghost", "ghost", {"privacy_settings": settings})


def clock_mark():
    """A time later than every event so far: a shard's clock can be some milliseconds ahead."""
    time.sleep(0.05)
    return time.time() - 0.01


compared = differing = differing_in_threads = 0
for number in range(channels):
    options = {
        "status_rule": draw.choice(["any", "all", 2, "50%"]),
        "mark_unread": draw.choice(["private", "public"]),
        "history": draw.choice(["visible", "hidden"]),
        "read_acks_receipts": draw.choice(["direct", "always", "never"]),
        "receipt_max_members": draw.choice([None, 0, 1, 2]),
        "counts_visible_to": draw.choice(["members", "members", "sender"]),
        "kept_steps": draw.choice([0, 1, 64]),
        "delivery_events": draw.choice([True, True, False]),
    }
    # In every fifth channel no user hides. There the answers must differ, else this script compares nothing.
    is_control = number % 5 == 4
    if is_control:
        options |= {"counts_visible_to": "members", "delivery_events": True}
    cid = f"messaging:leak-{seed}-{number}"
    path = "/v1/channels/" + cid
    privacy(True)
    members = people + ["ghost"]
    draw.shuffle(members)
    expect("PUT", path, None, {"members": members, "options": options})
    messages = [f"m{n}" for n in range(1, draw.randrange(2, 5))]
    for message in messages:
        body = {"id": message, "user_id": draw.choice(people), "receipt": draw.random() < 0.7}
        expect("POST", path + "/messages", None, body)
        for _ in range(draw.randrange(4)):
            act(path, [message], draw.choice(members))
    replies = [f"r{n}" for n in range(1, draw.randrange(2, 5))]
    for reply in replies:
        expect("POST", path + "/messages", None, {"id": reply, "user_id": draw.choice(people), "parent_id": "m1"})
        for _ in range(draw.randrange(3)):
            act_in_thread(path, "m1", [reply], draw.choice(members))
    if is_control:
        # A message and a reply that no member has read yet.
        messages.append("m9")
        expect("POST", path + "/messages", None, {"id": "m9", "user_id": people[0]})
        # A member who joins a thread later has not read its earlier replies.
        expect("POST", path + "/messages", None, {"id": "r8", "user_id": "ghost", "parent_id": "m1"})
        replies += ["r8", "r9"]
        expect("POST", path + "/messages", None, {"id": "r9", "user_id": people[0], "parent_id": "m1"})
    else:
        privacy(False)
    asked_before = clock_mark()
    before = views(path, messages + replies)
    for _ in range(6):
        act(path, messages, "ghost")
    if is_control:
        expect("POST", path + "/read", "ghost", {"message_id": "m9"})
    # The thread is changed second, so that each change shows where no user hides.
    between = views(path, messages + replies) if is_control else None
    for _ in range(5):
        act_in_thread(path, "m1", replies, "ghost")
    if is_control:
        expect("POST", path + "/read", "ghost", {"message_id": "r9", "thread_id": "m1"})
    asked_after = clock_mark()
    after = views(path, messages + replies)
    if is_control:
        differing += before != between
        differing_in_threads += between != after
        continue
    # Where the acknowledgement has no stored time, its bound is the time of the query.
    moving = options["receipt_max_members"] in (0, 1, 2)

    def is_bound(name, value, entry, asked):
        # The members query has no flag for an acknowledgement: the bound is as late as the query.
        if name == "acknowledged_at" and datetime.datetime.fromisoformat(value).timestamp() >= asked:
            return True
        flags = entry.get("exact"), entry.get(name.replace("_at", "_exact"))
        return name in ("read_at", "delivered_at") and False in flags

    def steady(document, asked):
        if moving and isinstance(document, dict):
            kept = {name: value for name, value in document.items() if not is_bound(name, value, document, asked)}
            return {name: steady(value, asked) for name, value in kept.items()}
        return [steady(value, asked) for value in document] if isinstance(document, list) else document

    assert before.keys() == after.keys(), (cid, options, before.keys() ^ after.keys())
    for key in before:
        compared += 1
        (status, then), (status_after, now) = before[key], after[key]
        same = status == status_after and steady(then, asked_before) == steady(now, asked_after)
        assert same, f"seed {seed}, {cid}, {options}: {key}: {before[key]} then {after[key]}"
assert differing > 0 and differing_in_threads > 0, "the control has no differences: the test compares nothing"
print(
    f"ok {compared} answers compared, {differing} of {channels // 5} channels without hiding differ,"
    f" {differing_in_threads} by what was done in a thread"
)
