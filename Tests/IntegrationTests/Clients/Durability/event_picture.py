"""A picture built from events alone: channels, members' rows, messages, statuses, counts and totals.

`differences` compares it with a picture built from queries."""
from dataclasses import dataclass, field


@dataclass
class Row:
    """A member as the viewer sees them; `joined`: the newest message when they joined, None if unknown."""

    read: int = 0
    delivered: int = 0
    joined: int | None = None


@dataclass
class Message:
    id: str
    seq: int
    sender: str
    is_silent: bool
    has_receipt: bool
    parent: str
    status: str = "sent"
    receipt: str = "none"
    is_deleted: bool = False
    # The counts of the query; events do not carry them, so the picture computes them.
    counts: tuple | None = None


@dataclass
class Own:
    """The viewer's own row: the position, its message's id, and the unread epoch."""

    read: int | None = 0
    read_id: str = ""
    epoch: int = 0
    # The count of the query.
    unread: int | None = None
    first_unread: str | None = None


@dataclass
class Channel:
    options: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)
    messages: dict = field(default_factory=dict)
    own: Own | None = None
    truncated: int = 0
    # Events reported every message after this one, and the join of every later member.
    base: int = 0
    # The viewer's join under hidden history: for the viewer, others are at least there (R6).
    join: int = 0

    def is_gone(self, message):
        if message.is_deleted:
            return True
        if not message.parent:
            return message.seq <= self.truncated
        parent = self.messages.get(message.parent)
        return parent is None or self.is_gone(parent)

    def standing(self):
        """The channel's existing messages, by id."""
        return {id: message for id, message in self.messages.items() if not self.is_gone(message)}

    def unread(self, viewer):
        """The number of messages unread for the viewer, and the id of the first."""
        unread = [
            message
            for message in self.standing().values()
            if not message.parent and message.seq > self.own.read and message.sender != viewer and not message.is_silent
        ]
        return len(unread), min(unread, key=lambda message: message.seq).id if unread else None

    def counts(self, message):
        """The numbers of members who have read a message, who have received it, and for whom it is (R1)."""
        expected = [
            row
            for user, row in self.rows.items()
            if user != message.sender and (row.joined is None or row.joined < message.seq)
        ]
        read = sum(row.read >= message.seq for row in expected)
        return read, sum(row.delivered >= message.seq for row in expected), len(expected)


class Picture:
    def __init__(self, viewer):
        # None for a server, which sees what members see of each other.
        self.viewer = viewer
        self.channels = {}
        self.totals = None
        # The number of marks at messages without an event.
        self.unknown = 0

    # Events.

    def apply(self, event):
        """Applies an event; returns the cid of a channel that the viewer has joined and that is still
        unknown."""
        kind, cid = event["type"], event.get("cid")
        user = event.get("user", {}).get("id", "")
        if kind == "notification.totals":
            self.totals = tuple(event[name] for name in ("total_unread_count", "unread_channels", "unread_threads"))
            return None
        if kind == "member.added" and user == self.viewer:
            return cid
        if kind == "channel.updated" and self.viewer is None and cid not in self.channels:
            return cid
        if (channel := self.channels.get(cid)) is None:
            return None
        if kind == "channel.deleted" or kind == "member.removed" and user == self.viewer:
            del self.channels[cid]
        elif kind.startswith("message."):
            self._message(channel, kind, user, event)
        elif kind == "channel.truncated":
            channel.truncated = max(channel.truncated, event["seq"])
        elif kind == "channel.updated":
            channel.options = event["channel"]["options"]
        elif kind == "member.added":
            place = max(event["last_read_seq"], channel.join)
            channel.rows[user] = Row(place, place, place)
        elif kind == "member.removed":
            channel.rows.pop(user, None)
        elif "thread_id" in event:
            pass  # No query returns a thread's rows.
        elif kind == "read_state.changed":
            if user == self.viewer:
                self._move(channel, event)
                channel.own.epoch = event["unread_epoch"]
            elif user in channel.rows:
                channel.rows[user].read = event["last_read_seq"]
                channel.rows[user].delivered = event["last_delivered_seq"]
        elif kind.startswith("notification.mark_"):
            self._move(channel, event)
            channel.own.epoch = event["unread_epoch"]
        else:
            raise ValueError(f"an event of no kind that is known: {event}")
        return None

    def _message(self, channel, kind, user, event):
        thread = event.get("thread_id", "")
        if kind == "message.new":
            fields = event["message"]
            self._sent(channel, user, fields, event["moves_position"], thread)
            if fields["id"] not in channel.messages:
                receipt = "processing" if fields["receipt"] else "none"
                channel.messages[fields["id"]] = Message(
                    fields["id"], fields["seq"], user, fields["silent"], fields["receipt"], thread, receipt=receipt
                )
        elif kind == "message.deleted":
            id = event["message_id"]
            if id not in channel.messages:
                channel.messages[id] = Message(id, event["seq"], "", False, False, thread)
            channel.messages[id].is_deleted = True
        elif kind == "message.status":
            for message in channel.messages.values():
                is_meant = message.sender == user and message.parent == thread
                if is_meant and event["from_seq"] <= message.seq <= event["to_seq"]:
                    message.status = event["status"]
        elif kind == "message.receipt":
            if event["message_id"] in channel.messages:
                channel.messages[event["message_id"]].receipt = event["receipt_status"]
        elif thread or user not in channel.rows:
            pass
        elif kind == "message.read":
            row = channel.rows[user]
            row.read = event["last_read_seq"]
            row.delivered = max(row.delivered, row.read)
        elif kind == "message.delivered":
            channel.rows[user].delivered = event["last_delivered_seq"]
        else:
            raise ValueError(f"an event of no kind that is known: {event}")

    def _sent(self, channel, user, fields, moves, thread):
        """A message also moves its sender's positions."""
        if thread:
            return
        if (row := channel.rows.get(user)) is not None:
            row.read = fields["seq"] if moves["read"] else row.read
            row.delivered = max(row.delivered, fields["seq"] if moves["read"] or moves["delivered"] else 0)
        if user == self.viewer and moves["read"]:
            channel.own.read, channel.own.read_id = fields["seq"], fields["id"]

    def _move(self, channel, event):
        id = event.get("last_read_message_id", "")
        known = channel.messages.get(id)
        channel.own.read_id = id
        channel.own.read = event.get("last_read_seq", known.seq if known else None if id else 0)
        if channel.own.read is None:
            self.unknown += 1

    # Comparison.

    def differences(self, truth):
        """The differences from a picture that is built from queries."""
        found = []
        if set(self.channels) != set(truth.channels):
            missing, extra = set(truth.channels) - set(self.channels), set(self.channels) - set(truth.channels)
            found.append(f"channels: without {sorted(missing)}, with {sorted(extra)}")
        for cid in sorted(set(self.channels) & set(truth.channels)):
            found += [f"{cid}: {text}" for text in self._channel(self.channels[cid], truth.channels[cid])]
        if self.totals is not None and self.totals != truth.totals:
            found.append(f"totals: {self.totals}, not {truth.totals}")
        return found

    def _channel(self, channel, truth):
        if channel.options != truth.options:
            yield f"options: {channel.options}, not {truth.options}"
        is_hiding = truth.options["counts_visible_to"] == "sender" and self.viewer is not None
        if not is_hiding and set(channel.rows) != set(truth.rows):
            yield f"members: {sorted(channel.rows)}, not {sorted(truth.rows)}"
        for user in sorted(set(channel.rows) & set(truth.rows)):
            row, right = channel.rows[user], truth.rows[user]
            if user != self.viewer and not is_hiding and (row.read, row.delivered) != (right.read, right.delivered):
                yield f"{user}: {row}, not {right}"
        messages, right = channel.standing(), truth.standing()
        if set(messages) != set(right):
            missing, extra = set(right) - set(messages), set(messages) - set(right)
            yield f"messages: without {sorted(missing)[:5]}, with {sorted(extra)[:5]}"
        for id in sorted(set(messages) & set(right)):
            yield from self._standing(channel, messages[id], right[id], is_hiding)
        if self.viewer is not None:
            yield from self._own(channel, truth)

    def _standing(self, channel, message, right, is_hiding):
        if self.viewer not in (None, message.sender):
            return
        if message.status != right.status:
            yield f"{message.id} (seq {message.seq}) is {message.status}, not {right.status}"
        if message.receipt != right.receipt:
            yield f"receipt of {message.id} is {message.receipt}, not {right.receipt}"
        is_counted = message.seq > channel.base and not message.parent and not message.has_receipt and not is_hiding
        if is_counted and channel.options["history"] == "visible" and channel.counts(message) != right.counts:
            yield f"{message.id} counts {channel.counts(message)}, not {right.counts}"

    def _own(self, channel, truth):
        own, right = channel.own, truth.own
        if (own.read_id, own.epoch) != (right.read_id, right.epoch):
            yield f"own row: {own}, not {right}"
        elif own.read is not None and channel.options["history"] == "visible":
            if channel.unread(self.viewer) != (right.unread, right.first_unread):
                yield f"own row counts {channel.unread(self.viewer)}, not {right}"
