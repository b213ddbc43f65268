"""Applies random histories of API commands over several gateways and compares every answer with a naive model.

usage: random_history.py BASE_URLS JWT_SECRET_FILE [--steps N] [--seed N] [--control [RULE ...]] [--ca FILE]
                         [--time-limit SECONDS]

BASE_URLS are the gateways in front of one store, separated by commas. Each command goes through a gateway drawn at
random and is answered before the next one starts. Servers and users send commands and queries. The same seed and
steps give the same history. Prints "ok N commands, M comparisons, ..." and exits 0, or prints the first difference
with a line that replays it and exits 1.

With --control the model forgets one rule at a time (RULES in history_model.py): each of those named, "all" for every
rule, or one drawn from the seed. For each rule, histories of this seed and the next ones run until one finds a
difference. Such a run exits 1 if a rule is never noticed: it shows that the test can fail.
"""
import argparse, random, sys
from history_answers import LIST_TIMES, Channel, ComparingClient, Difference, Model, Unanswered
from history_answers import comparable, empty_thread_row
from history_model import ANY, DEFAULTS, RULES, Rejection

DEFAULT_STEPS = 1000
CONTROL_SEEDS = 20  # Not every history uses every rule.
CHOICES = {
    "read_events": [True, True, False], "delivery_events": [True, True, False], "history": ["visible", "hidden"],
    "mark_unread": ["private", "private", "public", "off"], "read_acks_receipts": ["direct", "always", "never"],
    "counts_visible_to": ["members", "sender"], "status_rule": ["any", "all", 2, "50%"],
}


def minute_time(minute):
    return f"2026-01-01T{minute // 60:02}:{minute % 60:02}:00.000Z"


class History(ComparingClient):
    """Draws commands and queries, sends them to the gateways and to the model, and compares the answers."""

    def __init__(self, arguments, forgotten):
        super().__init__(arguments, Model(forgotten))
        self.random = random.Random(arguments.seed)
        self.message_count = self.channel_count = 0
        self.deleted_cids = []

    # Random choices.

    def chance(self, share):
        return self.random.random() < share

    def channel(self):
        return self.random.choice(sorted(self.model.channels.values(), key=lambda channel: channel.cid))

    def user(self, channel=None):
        """A user, usually a member."""
        members = [row.user for row in channel.present()] if channel else []
        return self.random.choice(members if members and self.chance(0.95) else self.users)

    def message(self, channel, reply_share=0.3, unknown_share=0.03):
        """A message's id, usually of one of the newest."""
        replies = [reply for message in channel.messages for reply in message.replies]
        numbered = replies if replies and self.chance(reply_share) else channel.messages
        if not numbered or self.chance(unknown_share):
            return "unknown"
        return self.random.choice(numbered[-8:] if self.chance(0.8) else numbered).id

    def parent(self, channel):
        with_replies = [message for message in channel.messages if message.replies]
        chosen = with_replies if with_replies and self.chance(0.8) else channel.messages
        return self.random.choice(chosen).id if chosen else "unknown"

    def acting(self, user, body):
        """The user whose token a command is sent with, or None for a server's, and the body."""
        return (user, body) if self.chance(0.4) else (None, body | {"user_id": user})

    def member(self, channel, user, as_user):
        row = channel.row(user) if channel else None
        if not row:
            raise Rejection(404, "channel_not_found" if as_user or not channel else "member_not_found")
        return row

    def epoch(self, channel, user, parent=None):
        """The unread epoch that a device has, sometimes an older one."""
        row = channel.row(user)
        position = channel.position(row, parent) if row else None
        return max(0, (position.epoch if position else 0) - self.random.choice((0, 1)))

    # Commands: channels, members, messages.

    def create(self):
        if self.deleted_cids and self.chance(0.5):
            cid = self.deleted_cids.pop()
        else:
            cid, self.channel_count = f"messaging:{self.channel_count}.{self.tag}", self.channel_count + 1
        options = {name: self.random.choice(CHOICES[name]) for name in CHOICES if self.chance(0.25)}
        members = self.random.sample(self.users, self.random.choice((2, 2, 2, 4, 5)))
        channel = Channel(self.model, cid, options)

        def apply(answer):
            for user in members:
                channel.join(user)
            self.model.channels[cid] = channel
            found = answer[1].get("channel", {})
            counts = found.get("member_count"), {name: found.get("options", {}).get(name) for name in DEFAULTS}
            self.check([channel], "PUT " + cid, counts, (len(members), channel.options))
            return 201, comparable(answer[1])

        self.command("create", [channel], "PUT", f"/v1/channels/{cid}", {"members": members, "options": options}, apply)

    def delete_channel(self):
        if len(self.model.channels) < 4:
            return
        channel = self.channel()

        def apply(answer):
            del self.model.channels[channel.cid]
            self.deleted_cids.append(channel.cid)
            return 200, comparable(answer[1])

        self.command("delete_channel", [channel], "DELETE", f"/v1/channels/{channel.cid}", None, apply)

    def change_options(self):
        channel, name = self.channel(), self.random.choice(sorted(CHOICES))
        options = {name: self.random.choice(CHOICES[name])}

        def apply(answer):
            channel.options |= options
            found = {name: answer[1].get("channel", {}).get("options", {}).get(name) for name in DEFAULTS}
            self.check([channel], f"PUT {channel.cid}", found, channel.options)
            return 200, comparable(answer[1])

        self.command("options", [channel], "PUT", f"/v1/channels/{channel.cid}", {"options": options}, apply)

    def change_members(self):
        channel = self.channel()
        members = [row.user for row in channel.present()]
        rejoins = len(members) == 2 and self.chance(0.6)  # Keeps some channels at two members.
        chosen = self.random.sample(members if rejoins else self.users, self.random.choice((1, 1, 1, 2)))
        removed = chosen if rejoins else [user for user in chosen if self.chance(0.4 if len(members) > 2 else 0.15)]
        added = chosen if rejoins else [user for user in chosen if user not in removed or self.chance(0.3)]

        def apply(answer):
            for user in removed:
                channel.leave(user)
            for user in added:
                channel.join(user)
            self.check([channel], "members", answer[1].get("channel", {}).get("member_count"), len(channel.present()))
            return 200, comparable(answer[1])

        body = {"add": added, "remove": removed}
        self.command("members", [channel], "POST", f"/v1/channels/{channel.cid}/members", body, apply)

    def new_message_fields(self, channel):
        self.message_count += 1
        minute = self.message_count // 2 + self.random.randrange(20)
        names = self.random.sample(self.users, self.random.choice((1, 2)))
        drawn = {"user_id": (0.95, self.user(channel)), "silent": (0.15, True), "receipt": (0.3, True)}
        drawn |= {"moves_position": (0.12, False), "parent_id": (0.35, self.parent(channel))}
        drawn["mentions"] = (0.3, self.random.choice(("all", names, names)))
        fields = {name: value for name, (share, value) in drawn.items() if self.chance(share)}
        if "parent_id" in fields and self.chance(0.03):
            fields["parent_id"] = self.message(channel, 1)
        if "parent_id" in fields and self.chance(0.8):
            fields.pop("receipt", None)
        kind = "r" if "parent_id" in fields else "m"
        return {"id": f"{kind}{self.message_count}", "created_at": minute_time(minute)} | fields

    def repeated_message_fields(self, channel):
        """The fields of a registered message, sometimes with one of them changed."""
        fields = dict(self.random.choice(list(channel.ids.values())).fields)
        changes = {"user_id": self.user(channel), "silent": True, "receipt": True, "moves_position": False}
        changes |= {"mentions": "all", "parent_id": self.parent(channel)}
        name = self.random.choice(sorted(changes))
        return fields | ({name: changes[name]} if self.chance(0.5) else {})

    def register(self):
        channel = self.channel()
        is_repeat = channel.ids and self.chance(0.08)
        fields = self.repeated_message_fields(channel) if is_repeat else self.new_message_fields(channel)

        def apply(_):
            status, message = channel.register(fields)
            seen = {"id": message.id, "cid": channel.cid, "seq": message.seq, "status": "sent"}
            if status == 200:
                seen["status"] = channel.status(None, message.id).get("status")
            if message.fields.get("receipt") and not message.receipt:
                seen["receipt_refused"] = "receipt_not_allowed"
            return status, {"message": seen}

        self.command("register", [channel], "POST", f"/v1/channels/{channel.cid}/messages", fields, apply)

    def delete(self):
        channel = self.channel()
        name = self.message(channel, 0.5)

        def apply(_):
            message = channel.delete(name)
            return 200, {"message": {"id": name, "cid": channel.cid, "seq": message.seq}}

        self.command("delete", [channel], "DELETE", f"/v1/channels/{channel.cid}/messages/{name}", None, apply)

    def truncate(self):
        channel = self.channel()
        before = self.random.choice(channel.messages).id if channel.messages and self.chance(0.8) else None

        def apply(answer):
            channel.truncate(before)
            return 200, comparable(answer[1])

        body = {"before": before} if before else {}
        self.command("truncate", [channel], "POST", f"/v1/channels/{channel.cid}/truncate", body, apply)

    # Commands: positions, receipts, settings.

    def mark(self, name, channel, user, body, apply):
        """A read or an unread, which the member's own new row answers."""
        marked = channel.ids.get(body.get("thread_id") or body.get("message_id"))
        parent = marked and (marked.parent or (marked if "thread_id" in body else None))
        if self.chance(0.25):
            body["unread_epoch"] = self.epoch(channel, user, parent)
        as_user, body = self.acting(user, body)
        with_totals = self.chance(0.2)

        def own_row(_):
            parent, reason = apply(self.member(channel, user, as_user), body.get("unread_epoch"))
            if reason == "no_replies":
                row = empty_thread_row(user)
            else:
                row = channel.row_answer(channel.row(user), parent, user)
            totals = self.model.totals(user)[0] if with_totals else {}
            return 200, {"read": row} | totals | ({"counted": False, "reason": reason} if reason else {})

        path = f"/v1/channels/{channel.cid}/{name}{'?totals=true' if with_totals else ''}"
        self.command(name, [channel], "POST", path, body, own_row, as_user)

    def read(self):
        channel = self.channel()
        body = {"message_id": self.message(channel)} if self.chance(0.6) else {}
        if not body and self.chance(0.4):
            body = {"thread_id": self.parent(channel)}
        names = body.get("message_id"), body.get("thread_id")
        self.mark("read", channel, self.user(channel), body, lambda row, epoch: channel.mark_read(row, *names, epoch))

    def unread(self):
        channel = self.channel()
        time = minute_time(self.random.randrange(self.message_count // 2 + 20))
        bodies = {"message_id": self.message(channel)}, {"thread_id": self.parent(channel)}, {}
        body = self.random.choices(bodies + ({"message_timestamp": time},), (5, 2, 2, 1))[0]
        names = [body.get(field) for field in ("message_id", "thread_id", "message_timestamp")]
        apply = lambda row, epoch: channel.mark_unread(row, *names, epoch)
        self.mark("unread", channel, self.user(channel), body, apply)

    def delivered_result(self, channel, user, as_user, name, parent=None):
        try:
            reason = channel.mark_delivered(self.member(channel, user, as_user), name, parent)
        except Rejection as rejection:
            return {"ok": False, "code": rejection.codes[0]}
        return {"ok": True} | ({"counted": False, "reason": reason} if reason else {})

    def delivered(self):
        channels = [self.channel() for _ in range(self.random.choice((1, 1, 3)))]
        names, user = [self.message(channel) for channel in channels], self.user(channels[0])
        if self.chance(0.3):
            return self.push_acks(channels, names)
        parents = []
        for channel, name in zip(channels, names):
            message = channel.ids.get(name)
            parents.append(message.parent.id if message and message.parent and self.chance(0.5) else None)
        entries = [{"cid": channel.cid, "id": name} | ({"parent_id": parent} if parent else {})
                   for channel, name, parent in zip(channels, names, parents)]
        as_user, body = self.acting(user, {"latest_delivered_messages": entries})

        def apply(_):
            return 201, {"results": [
                {"cid": channel.cid, "id": name} | self.delivered_result(channel, user, as_user, name, parent)
                for channel, name, parent in zip(channels, names, parents)]}

        self.command("delivered", channels, "POST", "/v1/channels/delivered", body, apply, as_user)

    def push_acks(self, channels, names):
        users = [self.user(channel) for channel in channels]
        entries = [{"cid": channel.cid, "message_id": name, "user_id": user}
                   for channel, name, user in zip(channels, names, users)]

        def apply(_):
            results = []
            for channel, name, user, entry in zip(channels, names, users, entries):
                result = self.delivered_result(channel, user, None, name)
                results.append(result | (entry if result["ok"] else {}))
            return 200, {"results": results}

        self.command("push_acks", channels, "POST", "/v1/push/acks", {"acks": entries}, apply)

    def read_many(self):
        channels = {channel.cid: channel for channel in (self.channel() for _ in range(3))}
        user = self.user(next(iter(channels.values())))
        named = {cid: self.message(channel, 0) if self.chance(0.6) else "" for cid, channel in channels.items()}
        epochs = {cid: self.epoch(channel, user) for cid, channel in channels.items()} if self.chance(0.6) else {}
        if self.chance(0.1):
            named[f"messaging:nowhere.{self.tag}"] = ""
        body = {"read_by_channel": named} | ({"unread_epochs": epochs} if epochs else {})
        as_user, body = self.acting(user, body)

        def apply(_):
            results = []
            for cid, name in named.items():
                result = {"cid": cid} | ({"id": name} if name else {}) | {"ok": True}
                try:
                    row = self.member(channels.get(cid), user, as_user)
                    _, reason = channels[cid].mark_read(row, name or None, None, epochs.get(cid))
                    result |= {"counted": False, "reason": reason} if reason else {}
                except Rejection as rejection:
                    result |= {"ok": False, "code": rejection.codes[0]}
                results.append(result)
            return 200, {"results": results}

        self.command("read_many", channels.values(), "POST", "/v1/channels/read", body, apply, as_user)

    def read_all(self):
        user = self.user()
        with_threads = {"threads": True} if self.chance(0.5) else {}
        as_user, body = self.acting(user, {"all": True} | with_threads)
        rows = self.model.rows_of(user)

        def apply(_):
            for channel, row in rows:
                channel.mark_read(row, None, None, None)
                for parent in channel.messages if with_threads else []:
                    if channel.unread_of(row, parent):
                        channel.mark_read(row, None, parent.id, None)
            return 200, {"channels_read": len(rows), "failed": []}

        channels = [channel for channel, _ in rows]
        self.command("read_all", channels, "POST", "/v1/channels/read", body, apply, as_user)

    def acknowledge(self):
        channel = self.channel()
        asking = [message.id for message in channel.messages if message.receipt]
        asking = asking[-5:] if self.chance(0.7) else asking
        names = [self.random.choice(asking) for _ in range(self.random.choice((1, 2))) if asking]
        names = list(dict.fromkeys(names + [self.message(channel)] if self.chance(0.3) or not names else names))
        user, note = self.user(channel), f"note {self.step}" if self.chance(0.5) else None
        as_user, body = self.acting(user, {"message_ids": names} | ({"note": note} if note else {}))

        def apply(answer):
            row, acknowledged, errors = self.member(channel, user, as_user), [], []
            reported = {error["message_id"]: error["code"] for error in answer[1].get("errors", [])}
            for name in names:
                codes = channel.refusals(row, name)
                if not codes:
                    channel.acknowledge(row, channel.ids[name], note)
                    acknowledged.append(name)
                else:  # The rules leave open which of two codes is reported.
                    code = reported[name] if reported.get(name) in codes else codes[0]
                    errors.append({"message_id": name, "code": code})
            return 200, {"acknowledged": acknowledged, "errors": errors}

        self.command("acknowledge", [channel], "POST", f"/v1/channels/{channel.cid}/receipts", body, apply, as_user)

    def privacy(self):
        user, kind, enabled = self.user(), self.random.choice(("read", "delivery")), self.chance(0.5)

        def apply(_):
            self.model.set_privacy(user, kind, enabled)
            shown = {one: (user, one) not in self.model.hidden for one in ("read", "delivery")}
            settings = {f"{one}_receipts": {"enabled": shown[one]} for one in shown}
            return 200, {"id": user, "privacy_settings": settings}

        body = {"privacy_settings": {f"{kind}_receipts": {"enabled": enabled}}}
        channels = [channel for channel, _ in self.model.rows_of(user)]
        self.command("privacy", channels, "PUT", f"/v1/users/{user}", body, apply, self.random.choice((None, user)))

    def mute(self):
        channel = self.channel()
        user, muted = self.user(channel), self.chance(0.5)
        as_user = self.random.choice((None, user))

        def apply(_):
            row = self.member(channel, user, as_user) if as_user else channel.row(user)
            channel.join(user)
            channel.row(user).muted = muted
            return 200 if row else 201, {"member": {"user": {"id": user}, "joined_at": ANY, "muted": muted}}

        path = f"/v1/channels/{channel.cid}/members/{user}"
        self.command("mute", [channel], "PUT", path, {"muted": muted}, apply, as_user)

    # Queries.

    def viewer(self, user):
        """The caller of a query: a server, a server for a user, or the user; and the matching query
        parameters."""
        kinds = (None, None, ""), (user, None, f"user_id={user}"), (user, user, "")
        return self.random.choice(kinds)

    def query(self, name, channels, path, key, as_user, expect, order=None):
        """Compares all pages of a list; `order` changes both answers into the same order first."""
        answer = self.pages(path, key, as_user)
        self.counts["? " + name] += 1
        if order and answer[0] == 200:
            order(answer[1])
        asked = f"GET {path} {'as ' + as_user if as_user else ''}"
        self.compare(channels, asked, answer, lambda: (200, expect()))

    def query_channel(self, channel):
        """Compares every query of a channel, of some of its messages and of one thread."""
        viewer, as_user, query = self.viewer(self.user(channel))
        own = lambda: self.member(channel, viewer, as_user) if viewer else None
        base, thread = f"/v1/channels/{channel.cid}", self.parent(channel)

        def ask(name, path, key, expect, order=None):
            path = f"{base}{path}{'&' if '?' in path else '?'}{query}" if query else base + path
            self.query(name, [channel], path, key, as_user, lambda: (own(), expect())[1], order)

        ask("read-state", "/read-state", "read", lambda: {"read": channel.read_state(viewer, not as_user)})
        ask("thread rows", f"/read-state?thread_id={thread}", "read",
            lambda: {"read": channel.read_state(viewer, not as_user, thread)})
        ask("roster", "/members", "members", lambda: {"members": channel.members(viewer)})
        self.query("messages", [channel], base + "/messages", "messages", None,
                   lambda: {"messages": channel.registered()})
        names = list(dict.fromkeys(self.message(channel) for _ in range(12)))
        self.query_statuses(channel, viewer, as_user, own, names)
        for name in names[:3]:
            self.query_message(channel, viewer, own, name, ask)

    def query_statuses(self, channel, viewer, as_user, own, names):
        named = {"user_id": viewer} if viewer and not as_user else {}
        path, body = f"/v1/channels/{channel.cid}/receipts/query", {"message_ids": names} | named
        answer = self.request("POST", path, body, as_user)
        self.counts["? statuses"] += 1

        def expect():
            own()
            return 200, {"statuses": [channel.status(viewer, name) for name in names]}

        self.compare([channel], f"POST {path} {body} {as_user}", answer, expect)

    def query_message(self, channel, viewer, own, name, ask):
        """Compares the status and the lists of one message."""
        path = f"/messages/{name}"
        for kind in ("readers", "delivered", "unread", "acknowledged", "unacknowledged"):
            order = self.random.choice(("joined", "joined", "time", "time_desc"))
            expect = lambda: self.ordered(channel.list_answer(viewer, own(), name, kind), order)
            ask(f"{kind} {order}", f"{path}/{kind}?order={order}", "members", expect,
                lambda answer: self.check_order(channel, f"{name} {kind}", answer, kind, order))
        users = self.random.sample(self.users, 4)
        ask("members", f"{path}/members?user_ids={','.join(users)}", "members",
            lambda: channel.members_answer(viewer, own(), name, users))

    def check_order(self, channel, question, answer, kind, order):
        """Compares a list with itself in order of time, then user id; the model knows times within a window only."""
        if order == "joined":
            return
        key = lambda entry: (entry.get(LIST_TIMES.get(kind), ""), entry["user"]["id"])
        is_descending = order == "time_desc"
        expected = sorted(answer["members"], key=key, reverse=is_descending)
        self.check([channel], f"{question} {order}", answer["members"], expected)
        self.ordered(answer, order)

    def ordered(self, answer, order):
        if order != "joined":
            answer["members"].sort(key=lambda entry: entry["user"]["id"])
        return answer

    def query_user(self, user):
        """Compares every query of a user's own state."""
        model, path, as_user = self.model, f"/v1/users/{user}", self.random.choice((None, user))
        channels = [channel for channel, _ in model.rows_of(user)]
        by_channel = lambda entries: entries.sort(key=lambda entry: entry["cid"])  # The order of channels is open.

        def ask(name, path, key, expected):
            by_channel(expected[key])
            self.query(name, channels, path, key, as_user, lambda: expected, lambda answer: by_channel(answer[key]))

        totals, entries = model.totals(user)
        ask("unread", path + "/unread", "channels", totals | {"channels": entries})
        ask("channels", path + "/channels", "channels", {"channels": model.channels_of(user)})
        ask("threads unread", path + "/threads?unread=true", "threads", {"threads": model.threads(user, True)})
        for state in ("pending", "acknowledged"):
            expected = {"receipts": model.receipts(user, state)}
            ask("receipts " + state, f"{path}/receipts?state={state}", "receipts", expected)

        def unread_first(answer):
            is_read = [not entry["unread_messages"] for entry in answer["threads"]]
            self.check(channels, path + "/threads: unread ones first", is_read, sorted(is_read))
            answer["threads"].sort(key=lambda entry: (not entry["unread_messages"], entry["cid"]))
            return answer

        expected = unread_first({"threads": model.threads(user, False)})
        self.query("threads", channels, path + "/threads", "threads", as_user, lambda: expected, unread_first)

    def query_many(self):
        """Compares the badge counts of some users, and the read states of some channels."""
        users = self.random.sample(self.users, 3)
        answer = self.request("POST", "/v1/unread", {"user_ids": users})
        self.counts["? badges"] += 1
        expected = {"users": [{"user_id": user} | self.model.totals(user)[0] for user in users]}
        channels = [channel for user in users for channel, _ in self.model.rows_of(user)]
        self.compare(channels, f"POST /v1/unread {users}", answer, lambda: (200, expected))
        channels = list(dict.fromkeys(self.channel() for _ in range(3)))
        viewer, as_user, _ = self.viewer(self.user(channels[0]))
        body = {"cids": [channel.cid for channel in channels]} | ({"user_id": viewer} if viewer and not as_user else {})
        answer = self.request("POST", "/v1/read-state", body, as_user)
        self.counts["? read-states"] += 1

        def state(channel):
            try:
                if viewer:
                    self.member(channel, viewer, as_user)
                return {"cid": channel.cid, "read": channel.read_state(viewer, not as_user)}
            except Rejection as rejection:
                return {"cid": channel.cid, "code": rejection.codes[0]}

        expect = lambda: (200, {"states": [state(channel) for channel in channels]})
        self.compare(channels, f"POST /v1/read-state {body} {as_user}", answer, expect)

    def play(self, steps):
        """Applies commands with queries in between, and compares everything at the end."""
        commands = {self.register: 30, self.read: 16, self.delivered: 9, self.unread: 9, self.acknowledge: 8}
        commands |= {self.change_members: 6, self.privacy: 4, self.mute: 3, self.delete: 4, self.truncate: 0.6}
        commands |= {self.change_options: 3, self.read_many: 3, self.read_all: 2.5, self.create: 1.5}
        commands[self.delete_channel] = 0.5
        for _ in range(3):
            self.create()
        for self.step in range(steps):
            self.random.choices(list(commands), list(commands.values()))[0]()
            if self.chance(0.12):
                self.query_channel(self.channel())
            if self.chance(0.06):
                self.query_user(self.user())
            if self.chance(0.03):
                self.query_many()
        for _, channel in sorted(self.model.channels.items()):
            self.query_channel(channel)
        for user in self.users:
            self.query_user(user)


def report(failure, arguments, seed, forgotten=None):
    """Prints a failure, and the line that replays it."""
    print(f"seed {seed}, {failure}")
    options = f"--steps {arguments.steps} --seed {seed}"
    options += (f" --control {forgotten}" if forgotten else "") + (f" --ca {arguments.ca}" if arguments.ca else "")
    print(f"replay: random_history.py {arguments.base_urls} {arguments.jwt_secret_file} {options}")


def notices(arguments, forgotten):
    """Whether a history finds a difference to the model that forgets a rule."""
    for seed in range(arguments.seed, arguments.seed + CONTROL_SEEDS):
        try:
            History(argparse.Namespace(**(vars(arguments) | {"seed": seed})), forgotten).play(arguments.steps)
        except Difference as difference:
            print(f"ok control {forgotten}, seed {seed}: difference at {str(difference).splitlines()[0]}")
            return True
        except Unanswered as failure:
            report(failure, arguments, seed, forgotten)
            return False
    seeds = f"seeds {arguments.seed} to {arguments.seed + CONTROL_SEEDS - 1}"
    print(f"control {forgotten} ({RULES[forgotten]}): no difference in {arguments.steps} steps of {seeds}")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base_urls")
    parser.add_argument("jwt_secret_file")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--control", nargs="*", choices=["all", *RULES], metavar="RULE")
    parser.add_argument("--ca", help="certificate to verify https gateways with")
    parser.add_argument("--time-limit", type=float, default=120, help="seconds for each history")
    arguments = parser.parse_args()
    if arguments.control is not None:
        rules = sorted(RULES) if "all" in arguments.control else arguments.control
        rules = rules or [random.Random(arguments.seed).choice(sorted(RULES))]
        return 0 if all([notices(arguments, rule) for rule in rules]) else 1
    history = History(arguments, None)
    try:
        history.play(arguments.steps)
    except (Difference, Unanswered) as failure:
        report(failure, arguments, arguments.seed)
        return 1
    done = sum(count for name, count in history.counts.items() if not name.startswith(("? ", "refused ")))
    kinds = ", ".join(f"{name} {count}" for name, count in sorted(history.counts.items()))
    print(f"ok {done} commands, {history.comparisons} comparisons: {kinds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
