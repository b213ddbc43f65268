"""The answers of the model in history_model.py, and a client that compares them with those of the gateways."""
import collections, json, random, socket, ssl, time
import httpx
from history_model import ANY, ChannelState, Rejection, State, Window
from access_token import token

REQUEST_TIMEOUT_SECONDS = 10
RETRY_LIMIT = 200  # Of a request that is answered 503, every 20 ms.
LOG_LINES = 60  # Of a channel's commands, printed with a difference.

COUNTS = ("read_count", "delivered_count", "unread_count", "member_count", "acknowledged_count")
IGNORED_FIELDS = {"registered_at", "title", "type", "detail", "request_id"}
LIST_TIMES = {"readers": "read_at", "delivered": "delivered_at", "acknowledged": "acknowledged_at"}
LISTS_WITH_NOTES = ("readers", "acknowledged")
ZEROS = ("joined_seq", "last_read_seq", "last_delivered_seq", "unread_messages", "unread_epoch", "unread_mentions")


def empty_thread_row(user):
    """The row that answers a mark under a message without replies."""
    return dict.fromkeys(ZEROS, 0) | {"user": {"id": user}, "marked_unread": False, "last_read": ANY}


class Channel(ChannelState):
    """A channel that answers queries.

    `viewer` is the user who asks, or None for a server that names no user; `own` is that user's row.
    """

    # Privacy.

    def shows(self, row, kind):
        """Whether others may see a member's reads or deliveries (R7, R8)."""
        switch = "read_events" if kind == "read" else "delivery_events"
        return self.options[switch] and self.model.shows(row.user, kind)

    def shown_positions(self, row, position):
        """The read and the delivered position that others see (R3, R4)."""
        shows_read = self.shows(row, "read")
        read = position.own() if self.options["mark_unread"] == "public" else position.watermark()
        delivered = position.delivered()
        # In a thread, deliveries from before the member took part never count (R15).
        counts = position is row.position or delivered > position.counted_since()
        if not counts or not self.shows(row, "delivery"):
            delivered = position.start
        return read if shows_read else position.start, max(delivered, position.watermark()) if shows_read else delivered

    def is_visible_in_thread(self, row, position):
        """Whether others see that a member takes part in a thread (R15)."""
        return position.shown_since is not None or self.shows_readers_in_threads(row)

    def shows_acknowledgement(self, row, message):
        return self.model.shows(row.user, "read") and message.acknowledgement(row) is not None

    def hides_counts(self, viewer, message):
        """Whether a viewer gets no counts and no lists (R10)."""
        is_private = self.options["counts_visible_to"] == "sender" and not self.model.forgets("counts-for-sender")
        return viewer is not None and is_private and viewer != message.sender

    # Statuses and lists.

    def expected(self, message, own=None):
        """The rows that a message is counted for, in join order; `own` as its member sees it (R1, R6, R15)."""
        rows = []
        for row, position in message.parent.positions if message.parent else [(r, r.position) for r in self.rows]:
            joined_later = row.tick > message.tick and not self.model.forgets("joined-later")
            if row.left or row.user == message.sender or joined_later:
                continue
            if message.parent:
                is_shown = row is own or self.shows_readers_in_threads(row)
                since = position.counted_since() if is_shown else position.shown_since
                has_read = (row is own or self.shows(row, "read")) and message.seq <= position.watermark()
                if not has_read and (since is None or message.seq <= since):
                    continue
            rows.append(row)
        return rows

    def member_status(self, row, message, is_own=False):
        """One member's status of a message: sent, delivered or read, as others or the member see it."""
        position = self.position(row, message.parent)
        read, delivered = self.shown_positions(row, position)
        acknowledged = self.shows_acknowledgement(row, message) and self.options["read_events"]
        if is_own:
            read, delivered = position.own(), position.own_delivered()
            acknowledged = message.acknowledgement(row) is not None
        return "read" if read >= message.seq or acknowledged else "delivered" if delivered >= message.seq else "sent"

    def lists(self, message):
        """The rows of each list of a message (R9, R11)."""
        expected = self.expected(message)
        statuses = [(row, self.member_status(row, message)) for row in expected]
        return {
            "readers": [row for row, status in statuses if status == "read"],
            "delivered": [row for row, status in statuses if status == "delivered"],
            "unread": [row for row, status in statuses if status != "read"],
            "acknowledged": [row for row in expected if self.shows_acknowledgement(row, message)],
            "unacknowledged": [row for row in expected if not self.shows_acknowledgement(row, message)],
        }

    def receipt_status(self, message):
        waited_for = [row for row in self.expected(message) if self.model.shows(row.user, "read")]
        is_done = waited_for and all(self.shows_acknowledgement(row, message) for row in waited_for)
        return "none" if not message.receipt else "done" if is_done else "processing"

    def reaches_status(self, message, reaching, kind):
        """Whether the members who have reached a status are enough for the status rule (R19)."""
        waited_for = [row for row in self.expected(message) if self.model.shows(row.user, kind)]
        rule = "any" if self.model.forgets("status-rule") else self.options["status_rule"]
        if isinstance(rule, int):
            needed = min(rule, len(waited_for))
        else:
            needed = {"any": 1, "all": len(waited_for), "50%": -(-len(waited_for) // 2)}[rule]
        return len([row for row in reaching if row in waited_for]) >= max(1, needed)

    def status(self, viewer, name):
        """A message's status and counts, or its error code (R1, R9, R10)."""
        try:
            message = self.find(viewer and self.row(viewer), name)
        except Rejection as rejection:
            return {"message_id": name, "code": rejection.codes[0]}
        if message.deleted:
            return {"message_id": name, "code": "message_deleted"}
        lists, expected = self.lists(message), self.expected(message)
        read, delivered = lists["readers"], lists["readers"] + lists["delivered"]
        is_read = self.reaches_status(message, read, "read")
        is_delivered = self.reaches_status(message, delivered, "delivery")
        status = "read" if is_read else "delivered" if is_delivered else "sent"
        counts = [len(read), len(delivered), len(expected) - len(read), len(expected), len(lists["acknowledged"])]
        receipt_status = self.receipt_status(message)
        if self.hides_counts(viewer, message):
            status, counts, receipt_status = "sent", [0] * 5, "processing" if message.receipt else "none"
        answer = dict(zip(COUNTS if message.receipt else COUNTS[:-1], counts))
        answer |= {"message_id": name, "cid": self.cid, "seq": message.seq, "created_at": ANY}
        answer |= {"status": status, "receipt_status": receipt_status}
        return answer | {kind: self.options[kind] for kind in ("read_events", "delivery_events")}

    # Times.

    def time_of(self, row, message, kind, is_own=False):
        """The time at which a member read a message, or had it delivered, and whether it is exact (R7, R17).

        A read that an unread marker hides has no time, so an acknowledgement answers (R4, R9).
        Threads keep a tail of the steps only, so their times are left open.
        """
        if message.parent:
            return ANY, ANY
        reads, deliveries, acknowledgement = row.position.reads, row.position.deliveries, message.acknowledgement(row)
        reaching = [step for step in reads if step.number >= message.seq]
        steps = reaching[-1:] if self.model.forgets("first-step") else reaching[:1]
        shows_marker = is_own or self.options["mark_unread"] == "public"
        if kind == "read" and shows_marker and row.position.own() < message.seq:
            steps = []
        steps += [acknowledgement] if acknowledgement else []
        if not is_own and not self.shows(row, "read"):
            steps = []
        if kind == "delivery" and (is_own or self.shows(row, "delivery")):
            steps += [step for step in deliveries if step.number >= message.seq][:1]
        times = [(step.window, True) if is_own else (step.shown, step.exact) for step in steps]
        return min(times, default=(ANY, ANY), key=lambda time: (time[0].start, not time[1]))

    def time_fields(self, row, message, kind, names, is_own=False):
        time, exact = self.time_of(row, message, kind, is_own)
        return dict(zip(names, (time, exact)))

    def last_read(self, row, position, is_own):
        """The time of the last move of the read watermark, or of joining (R2)."""
        if position is not row.position:
            return ANY
        if not position.reads or not (is_own or self.shows(row, "read")):
            return row.joined_at
        return position.reads[-1].window if is_own else position.reads[-1].shown

    # Lists of a message.

    def listed_message(self, own, name):
        """A message whose lists may be queried."""
        try:
            message = self.find(own, name)
        except Rejection as rejection:
            raise Rejection(404, *rejection.codes)
        if message.deleted:
            raise Rejection(404, "message_deleted")
        return message

    def list_answer(self, viewer, own, name, kind):
        """All pages of one list in join order, with the total of the first page (R11)."""
        message = self.listed_message(own, name)
        if self.hides_counts(viewer, message):
            raise Rejection(403, "counts_not_visible")
        if kind in ("acknowledged", "unacknowledged") and not message.receipt:
            raise Rejection(409, "receipt_not_requested")
        entries = []
        for row in self.lists(message)[kind]:
            entry, acknowledgement = {"user": {"id": row.user}}, message.acknowledgement(row)
            if kind == "acknowledged":
                entry |= {"acknowledged_at": acknowledgement.shown, "exact": acknowledgement.exact}
            elif kind != "unread" and kind != "unacknowledged":
                of = "read" if kind == "readers" else "delivery"
                entry |= self.time_fields(row, message, of, (LIST_TIMES[kind], "exact"))
            has_note = self.shows_acknowledgement(row, message) and acknowledgement.note
            entries.append(entry | ({"note": acknowledgement.note} if has_note and kind in LISTS_WITH_NOTES else {}))
        return {"members": entries, "total": len(entries)}

    def members_answer(self, viewer, own, name, users):
        """One message and chosen members (R11)."""
        message = self.listed_message(own, name)
        sender = self.row(message.sender)
        counted = self.expected(message, own) + [sender] if message.parent else self.rows
        entries = []
        for user in users:
            row, entry = self.row(user), {"user": {"id": user}}
            if not row:
                entry["code"] = "member_not_found"
            elif self.hides_counts(viewer, message) and user != viewer:
                entry["code"] = "counts_not_visible"
            elif row.tick > message.tick or row not in counted:
                entry["code"] = "not_expected"
            else:
                is_own, acknowledgement = user == viewer, message.acknowledgement(row)
                entry["status"] = self.member_status(row, message, is_own)
                if entry["status"] == "read":
                    entry |= self.time_fields(row, message, "read", ("read_at", "read_exact"), is_own)
                if entry["status"] != "sent":
                    names = ("delivered_at", "delivered_exact")
                    entry |= self.time_fields(row, message, "delivery", names, is_own)
                if acknowledgement and (is_own or self.model.shows(user, "read")):
                    entry["acknowledged_at"] = acknowledgement.window if is_own else acknowledgement.shown
            entries.append(entry)
        return {"members": entries}

    # Unread counts and rows.

    def unread_of(self, row, parent):
        """The messages, or replies, that are unread for a member (R14, R15)."""
        position = self.position(row, parent)
        if not position or (parent and parent.deleted):
            return []
        start = max(position.own(), self.base(row, parent) if row.is_hidden else 0)
        if parent and position.marker is None:
            start = max(start, position.since)
        later = self.numbered(parent)[start:]
        others = [one for one in later if one.sender != row.user]
        others = [one for one in others if not one.silent or self.model.forgets("silent-unread")]
        return [one for one in others if not one.deleted or self.model.forgets("deleted-unread")]

    def mentions_of(self, row, parent):
        """The number of unread mentions: of a thread, or of the channel with its threads (R14)."""
        parents = [parent] if parent else [None] + self.messages
        unread = [message for one in parents for message in self.unread_of(row, one)]
        return len([message for message in unread if any(other is row for other in message.mentions)])

    def row_answer(self, row, parent, viewer, is_server=True):
        """A row of the read state (R12, R18)."""
        position, is_own = self.position(row, parent), viewer == row.user
        own = row if is_own else self.row(viewer) if viewer else None
        hides_past = own is not None and own.is_hidden and self.base(own, parent) > 0
        base = self.base(own, parent) if hides_past else 0
        read, delivered = self.shown_positions(row, position)
        last_read = self.last_read(row, position, is_own)
        if is_own:
            read, delivered = position.own(), position.own_delivered()
        elif hides_past:
            last_read = last_read if read > base else own.joined_at if not parent else ANY
            read, delivered = max(read, base), max(delivered, base)
        answer = {"user": {"id": row.user}, "joined_seq": max(position.counted_since(), base)}
        answer |= {"last_read": last_read, "last_read_seq": read, "last_delivered_seq": delivered}
        if delivered:
            answer["last_delivered_at"] = ANY
        for name, number in (("last_read_message_id", read), ("last_delivered_message_id", delivered)):
            if number > base:
                answer[name] = self.numbered(parent)[number - 1].id
        if is_own or (is_server and not hides_past):
            unread = self.unread_of(row, parent)
            answer |= {"unread_messages": len(unread), "unread_epoch": position.epoch}
            if unread:
                answer["first_unread_message_id"] = unread[0].id
        if is_own:
            answer |= {"marked_unread": position.flagged, "unread_mentions": self.mentions_of(row, parent)}
        return answer

    def read_state(self, viewer, is_server, thread=None):
        """All rows, newest members first and the own row before them (R12)."""
        own = self.row(viewer) if viewer else None
        parent = self.thread(own, thread) if thread else None
        pairs = parent.positions if parent else [(row, row.position) for row in self.rows]
        rows = [row for row, position in reversed(pairs) if not row.left and (
            row is own or not parent or self.is_visible_in_thread(row, position))]
        if own and self.options["counts_visible_to"] == "sender":
            rows = [row for row in rows if row is own]
        rows.sort(key=lambda row: row is not own)
        return [self.row_answer(row, parent, viewer, is_server) for row in rows]

    # Registered members and messages.

    def members(self, viewer):
        """The roster, in join order; `muted` is shown to that member and to servers."""
        entries = []
        for row in self.present():
            entry = {"user": {"id": row.user}, "joined_at": row.joined_at}
            entries.append(entry | ({"muted": True} if row.muted and viewer in (None, row.user) else {}))
        return entries

    def registered(self):
        """The messages that are not deleted: newest first, each after its replies."""
        entries = []
        for message in reversed(self.messages):
            for one in list(reversed(message.replies)) + [message]:
                if one.is_gone():
                    continue
                entry = {"id": one.id, "seq": one.seq, "created_at": ANY}
                entry |= {"user": {"id": one.sender}} if one.sender else {}
                entry |= {name: True for name in ("silent", "receipt") if getattr(one, name)}
                entries.append(entry | ({"parent_id": message.id} if one is not message else {}))
        return entries


class Model(State):
    """The model of the whole application, with the answers that go over all channels of a user."""

    def totals(self, user):
        """A user's totals, and the channels that make them up (R14)."""
        forgets_mute = self.forgets("muted-totals")
        counted = [(channel, row) for channel, row in self.rows_of(user) if not row.muted or forgets_mute]
        entries, messages, mentions, threads = [], 0, 0, 0
        for channel, row in counted:
            unread, unread_mentions = channel.unread_of(row, None), channel.mentions_of(row, None)
            messages, mentions = messages + len(unread), mentions + unread_mentions
            threads += len([message for message in channel.messages if channel.unread_of(row, message)])
            if not unread and not row.position.flagged:
                continue
            seen = channel.row_answer(row, None, user)
            names = ("last_read_message_id", "first_unread_message_id", "last_read", "unread_messages")
            entry = {"cid": channel.cid, "unread_mentions": unread_mentions}
            entry |= {name: seen[name] for name in names if name in seen}
            entries.append(entry | ({"marked_unread": True} if row.position.flagged else {}))
        totals = {"total_unread_count": messages, "unread_channels": len(entries)}
        return totals | {"unread_threads": threads, "unread_mentions": mentions}, entries

    def threads(self, user, unread_only):
        """A user's threads: unread ones first, in each channel the newest parent first (R15)."""
        entries = []
        for channel, row in self.rows_of(user):
            for parent in reversed(channel.messages):
                if parent.deleted or not channel.position(row, parent):
                    continue
                seen, newest = channel.row_answer(row, parent, user), parent.replies[-1].id
                entry = {"cid": channel.cid, "thread_id": parent.id, "newest_message_id": newest}
                names = ("unread_messages", "last_read_message_id", "first_unread_message_id")
                entries.append(entry | {name: seen[name] for name in names if name in seen})
        unread = [entry for entry in entries if entry["unread_messages"]]
        return unread if unread_only else unread + [entry for entry in entries if not entry["unread_messages"]]

    def receipts(self, user, state):
        """A user's pending or acknowledged requests, in each channel the newest message first (R9)."""
        entries = []
        for channel, row in self.rows_of(user):
            for message in reversed(channel.messages):
                known = message.acknowledgement(row)
                is_asked = message.receipt and message.sender != user and message.seq > row.joined_seq
                if message.deleted or not is_asked or bool(known) != (state == "acknowledged"):
                    continue
                entry = {"cid": channel.cid, "message_id": message.id, "seq": message.seq, "created_at": ANY}
                entry |= {"user": {"id": message.sender}} if message.sender else {}
                entry |= {"acknowledged_at": known.window, "exact": True} if known else {}
                entry |= {"note": known.note} if known and known.note else {}
                receipt_status = channel.status(user, message.id)["receipt_status"]
                entries.append(entry | {"receipt_status": receipt_status})
        return entries

    def channels_of(self, user):
        return [{"cid": channel.cid, "joined_at": row.joined_at} for channel, row in self.rows_of(user)]


def comparable(value):
    """An answer without the fields that the model does not follow."""
    if isinstance(value, list):
        return [comparable(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: comparable(part) for key, part in value.items() if key not in IGNORED_FIELDS}


def differences(found, expected, path=""):
    """The paths at which two answers differ, each with both values."""
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = sorted(found.keys() | expected.keys())
        return [one for key in keys for one in differences(found.get(key), expected.get(key), f"{path}.{key}")]
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)) and len(found) == len(expected):
        pairs = enumerate(zip(found, expected))
        return [one for number, (left, right) in pairs for one in differences(left, right, f"{path}[{number}]")]
    return [] if found == expected else [(path, found, expected)]


class Difference(Exception):
    """The first answer that differs from the model's."""


class Unanswered(Exception):
    """A request that failed, or a time limit that was exceeded."""


def disable_nagle(event, info):
    """Sets TCP_NODELAY: httpx writes a request's headers and body separately, which costs 40 ms a request."""
    if event == "connection.connect_tcp.complete":
        info["return_value"].get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class ComparingClient:
    """Sends requests through gateways drawn at random and compares the answers with the model's.

    `random` is the history's source of random choices, which a subclass sets.
    """

    def __init__(self, arguments, model):
        self.model, self.step, self.deadline = model, 0, time.monotonic() + arguments.time_limit
        self.gateway_random = random.Random(arguments.seed)
        verify = ssl.create_default_context(cafile=arguments.ca) if arguments.ca else False
        self.clients = [
            httpx.Client(http1=False, http2=True, base_url=url, timeout=REQUEST_TIMEOUT_SECONDS, verify=verify)
            for url in arguments.base_urls.split(",")
        ]
        self.tag = f"{arguments.seed}-{time.time_ns() // 1_000_000:x}"  # Keeps runs on the same store apart.
        self.users = [f"{name}.{self.tag}" for name in ("ann", "ben", "cat", "dan", "eve", "fay", "gus")]
        with open(arguments.jwt_secret_file, "rb") as file:
            secret = file.readline().rstrip(b"\n")
        self.tokens = {None: token(secret)}
        self.tokens |= {user: token(secret, user) for user in self.users}
        self.counts, self.comparisons = collections.Counter(), 0

    def request(self, method, path, body=None, as_user=None):
        """Status and body of an answer; the model's window becomes the time of this request."""
        headers, start = {"authorization": "Bearer " + self.tokens[as_user]}, time.time()
        for _ in range(RETRY_LIMIT):
            if time.monotonic() > self.deadline:
                raise Unanswered(f"step {self.step}: the run's time limit was exceeded")
            client = self.gateway_random.choice(self.clients)
            try:
                answer = client.request(method, path, json=body, headers=headers, extensions={"trace": disable_nagle})
            except httpx.HTTPError as error:
                raise Unanswered(f"step {self.step}: {method} {path} failed: {error!r}")
            if answer.status_code != 503:
                self.model.window = Window(start, time.time())
                return answer.status_code, answer.json()
            time.sleep(0.02)
        raise Unanswered(f"step {self.step}: {method} {path} was answered 503 {RETRY_LIMIT} times: {answer.text}")

    def check(self, channels, question, found, expected):
        self.comparisons += 1
        if found == expected:
            return
        lines, channels = [f"step {self.step}: {question}"], list(dict.fromkeys(channels))
        for channel in channels:
            log = [line.replace(channel.cid, "~") for line in channel.log[-LOG_LINES // len(channels) :]]
            lines += [f"{channel.cid} {channel.options}"] + ["    " + line for line in log]
        lines.append("answered: " + json.dumps(found))
        lines.append("model:    " + json.dumps(expected, default=repr))
        lines += [f"  {path}: answered {one}, model {other}" for path, one, other in differences(found, expected)]
        raise Difference("\n".join(lines).replace("." + self.tag, ""))

    def compare(self, channels, question, answer, expect):
        """Compares an answer with what `expect` returns, a status and a body, or raises: a `Rejection`."""
        try:
            expected, found = expect(), (answer[0], comparable(answer[1]))
        except Rejection as rejection:
            found, expected = (answer[0], answer[1].get("code")), (rejection.status, rejection.codes[0])
            expected = found if found == rejection.alternative else expected
            self.counts[f"refused {found[1]}"] += 1
        self.check(channels, question, found, expected)

    def command(self, name, channels, method, path, body, apply, as_user=None):
        """Sends a command, applies it to the model, and compares the answers."""
        answer = self.request(method, path, body, as_user)
        self.counts[name] += 1
        asked = f"{method} {path} {json.dumps(body) if body is not None else ''} {'as ' + as_user if as_user else ''}"
        for channel in dict.fromkeys(channels):
            channel.log.append(f"{self.step}: {asked} -> {answer[0]} {answer[1].get('code', '')}")
        self.compare(channels, asked, answer, lambda: apply(answer))

    def pages(self, path, name, as_user=None):
        """All pages of a list in one, with the further fields of the first page."""
        limit, entries, cursor, first = self.random.choice((1, 2, 3, 100)), [], "", None
        if "user_ids=" in path:
            return self.request("GET", path, None, as_user)
        while True:
            separator = "&" if "?" in path else "?"
            status, page = self.request("GET", f"{path}{separator}limit={limit}{cursor}", None, as_user)
            if status != 200:
                return status, page
            first = first or page
            entries += page[name]
            if "next" not in page:
                return 200, {key: value for key, value in first.items() if key != "next"} | {name: entries}
            cursor = "&cursor=" + page["next"]
