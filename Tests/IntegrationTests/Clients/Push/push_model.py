"""A naive model of the rules for a push day: lists of messages, and a row for each member. It shares nothing
with the services' implementation."""


class Row:
    """A member's row, as sequence numbers: joined, read, delivered by apps, delivered by acks."""

    def __init__(self, joined):
        self.joined, self.reads, self.deliveries, self.acks = joined, [joined], [joined], []

    @property
    def read(self):
        return max(self.reads)

    @property
    def delivered(self):
        return max(self.deliveries + self.acks)

    @property
    def shown(self):
        return max(self.read, self.delivered)

    def is_decided_by_acks(self):
        """Whether the shown position would differ without the acks of one message."""
        return self.shown > max(self.reads + self.deliveries)


class Room:
    """One incarnation of a channel."""

    def __init__(self, cid, members):
        self.cid = cid
        self.messages = []
        self.deleted = set()
        self.rows = {user: Row(0) for user in members}

    @property
    def newest(self):
        return len(self.messages)

    def register(self, message, sender):
        self.messages.append((message, sender))
        if sender in self.rows:
            self.rows[sender].reads.append(self.newest)
            self.rows[sender].deliveries.append(self.newest)
        return self.newest

    def unread(self, user):
        read = self.rows[user].read
        return sum(id not in self.deleted and sender != user for id, sender in self.messages[read:])

    def expected(self, seq, sender):
        """The members for whom a message is."""
        return {user: row for user, row in self.rows.items() if user != sender and row.joined < seq}

    def status(self, seq, sender):
        rows = self.expected(seq, sender).values()
        read, delivered = sum(row.read >= seq for row in rows), sum(row.shown >= seq for row in rows)
        return {
            "status": "read" if read else "delivered" if delivered else "sent",
            "read_count": read,
            "delivered_count": delivered,
            "unread_count": len(rows) - read,
            "member_count": len(rows),
        }

    def lists(self, seq, sender):
        """The members who have read a message, who have only received it, and who have not read it."""
        rows = self.expected(seq, sender)
        return {
            "readers": {user for user, row in rows.items() if row.read >= seq},
            "delivered": {user for user, row in rows.items() if row.read < seq <= row.delivered},
            "unread": {user for user, row in rows.items() if row.read < seq},
        }


class Model:
    """All channels. It gets the acks answered ok, and returns the expected state."""

    def __init__(self):
        self.rooms = {}

    def row(self, cid, user):
        """Returns None if the user is no member, or the channel does not exist."""
        return self.rooms[cid].rows.get(user) if cid in self.rooms else None

    def create(self, cid, members):
        self.rooms[cid] = Room(cid, members)

    def remove(self, cid):
        del self.rooms[cid]

    def join(self, cid, user):
        self.rooms[cid].rows[user] = Row(self.rooms[cid].newest)

    def leave(self, cid, user):
        del self.rooms[cid].rows[user]

    def push(self, cid, id, user, seq):
        """A push: its ticket is for this row, in the current incarnation of the channel."""
        room = self.rooms[cid]
        return {"room": room, "row": room.rows[user], "cid": cid, "message_id": id, "user_id": user, "seq": seq}

    def answer(self, ack):
        """The expected answer to an ack in the current state: `ok`, or the code."""
        is_ticket, room = ack["by"] == "ticket", self.rooms.get(ack["cid"])
        if room is None or is_ticket and room is not ack["room"]:
            return "channel_not_found"
        row = room.rows.get(ack["user_id"])
        if row is None or is_ticket and row is not ack["row"]:
            return "not_a_member" if is_ticket else "member_not_found"
        return "ok" if room is ack["room"] else "message_not_found"

    def acknowledge(self, ack):
        """An ack was answered ok: its message and all earlier ones are delivered (R3), if their row still
        exists."""
        row = ack["room"].rows.get(ack["user_id"])
        if row is not None and (ack["by"] == "name" or row is ack["row"]):
            row.acks.append(ack["seq"])

    def badge(self, user):
        counts = [room.unread(user) for room in self.rooms.values() if user in room.rows]
        return {
            "total_unread_count": sum(counts),
            "unread_channels": sum(count > 0 for count in counts),
            "unread_threads": 0,
        }


def differences(model, found):
    """The differences between the API and the model. `found` has for each channel its rows by user, its
    statuses by message, and the lists of some messages."""
    wrong = []

    def compare(what, actual, expected):
        if actual != expected:
            wrong.append(f"{what} is {actual}, not {expected}")

    compare("the channels", sorted(found), sorted(model.rooms))
    for cid in sorted(set(found) & set(model.rooms)):
        room, view = model.rooms[cid], found[cid]
        compare(f"the members of {cid}", sorted(view["rows"]), sorted(room.rows))
        for user in sorted(set(view["rows"]) & set(room.rows)):
            row, shown = room.rows[user], view["rows"][user]
            expected = {
                "last_delivered_seq": row.shown,
                "last_delivered_message_id": room.messages[row.shown - 1][0] if row.shown else None,
                "last_read_seq": row.read,
                "unread_messages": room.unread(user),
            }
            compare(f"{user}'s row in {cid}", {name: shown.get(name) for name in expected}, expected)
        for seq, (id, sender) in enumerate(room.messages, 1):
            expected = {"code": "message_deleted"} if id in room.deleted else room.status(seq, sender)
            status = view["statuses"].get(id, {})
            compare(f"the status of {id} in {cid}", {name: status.get(name) for name in expected}, expected)
            for name, users in room.lists(seq, sender).items() if id in view["lists"] else ():
                compare(f"the list {name} of {id} in {cid}", sorted(view["lists"][id][name]), sorted(users))
    return wrong
