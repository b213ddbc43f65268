"""A naive model of the receipt rules (docs/api/semantics.md), for random_history.py.

The model is written from the rules alone. It keeps every watermark move in a list and answers each query by scanning
the lists. It knows nothing of shards, pages, logs or gateways.
"""
import datetime

# Rules that a control run makes the model forget, each by name.
RULES = {
    "sender-position": "R5: registering a message moves its sender's own watermarks",
    "unread-marker": "R4: mark-unread sets the unread marker",
    "stale-epoch": "R4: a read or an unread with an older epoch leaves the marker alone",
    "unread-flag": "R4: a read clears the channel's unread flag",
    "hidden-history": "R6: messages from before a join do not exist for that member",
    "joined-later": "R6: a member who joined after a message is not counted for it",
    "privacy": "R7: hidden reads are in no count and no list",
    "read-acknowledges": "R9: mark-read acknowledges where read_acks_receipts says so",
    "first-note": "R9: the note of the first acknowledgement stays",
    "counts-for-sender": "R10: with counts_visible_to sender, others get no counts",
    "silent-unread": "R14: silent messages are not unread",
    "muted-totals": "R14: muted channels are in no total",
    "two-member-threads": "R15: in two-member channels both members take part in each thread",
    "deleted-unread": "R16: deleted messages are not unread",
    "first-step": "R17: the time of a read is that of the step that first reached the message",
    "status-rule": "R19: a status waits for the members that the status rule asks for",
}
DEFAULTS = {"read_events": True, "delivery_events": True, "mark_unread": "private", "history": "visible"}
DEFAULTS |= {"read_acks_receipts": "direct", "counts_visible_to": "members", "status_rule": "any"}
CLOCK_TOLERANCE_SECONDS = 0.05  # A shard's time can be some milliseconds ahead of the clock (R20).


class Rejection(Exception):
    """An error answer: a status, and the codes that are allowed, the most likely first."""

    def __init__(self, status, *codes):
        self.status, self.codes, self.alternative = status, codes, None


class Anything:
    """A value that the rules leave open, or that the model does not follow."""

    def __eq__(self, other):
        return other is not None

    def __repr__(self):
        return "<any>"


ANY = Anything()


class Window:
    """The time between a request and its answer; equal to each RFC 3339 time in it."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def __eq__(self, other):
        if not isinstance(other, str):
            return NotImplemented
        time = datetime.datetime.fromisoformat(other.replace("Z", "+00:00")).timestamp()
        return self.start - CLOCK_TOLERANCE_SECONDS <= time <= self.end + CLOCK_TOLERANCE_SECONDS

    def __repr__(self):
        start = datetime.datetime.fromtimestamp(self.start, datetime.timezone.utc)
        return f"<about {start.isoformat(timespec='milliseconds')}>"


class Step:
    """One move of a watermark, or one acknowledgement.

    `shown` is the window in which others learn of it, None while the user hides; it is `exact` if that is the move's.
    """

    def __init__(self, model, user, kind, number):
        self.number, self.window, self.exact = number, model.window, model.shows(user, kind)
        self.shown = self.window if self.exact else None


class Position:
    """A member's watermarks and unread marker in a channel, or in a thread from the reply after `since` on.

    `shown_since` is where the member takes part for others to see; None while the member only reads in the thread.
    """

    def __init__(self, model, user, start, since, shown_since):
        self.model, self.user, self.start, self.since, self.shown_since = model, user, start, since, shown_since
        self.reads, self.deliveries = [], []
        self.marker, self.epoch, self.flagged = None, 0, False

    def counted_since(self):
        return self.since if self.shown_since is None else self.shown_since

    def watermark(self):
        return max([self.start] + [step.number for step in self.reads])

    def delivered(self):
        return max([self.start] + [step.number for step in self.deliveries])

    def own(self):
        return self.watermark() if self.marker is None else min(self.marker, self.watermark())

    def own_delivered(self):
        return max(self.delivered(), self.watermark())

    def is_stale(self, epoch):
        return epoch is not None and epoch < self.epoch and not self.model.forgets("stale-epoch")

    def move_read(self, number):
        if number > self.watermark():
            self.reads.append(Step(self.model, self.user, "read", number))

    def move_delivered(self, number):
        if number > self.delivered():
            self.deliveries.append(Step(self.model, self.user, "delivery", number))

    def read(self, number, epoch):
        self.move_read(number)
        if self.is_stale(epoch):
            return
        if self.marker is not None:
            self.marker = max(self.marker, number)
            if self.marker >= self.watermark():
                self.marker = None
        self.flagged = self.flagged and self.model.forgets("unread-flag")

    def unread(self, number, epoch):
        if number > self.watermark() or self.marker == number - 1 or self.is_stale(epoch):
            return
        self.epoch += 1
        if not self.model.forgets("unread-marker"):
            self.marker = number - 1

    def flag(self, epoch):
        if not self.flagged and not self.is_stale(epoch):
            self.flagged, self.epoch = True, self.epoch + 1

    def sent(self, number):
        if self.model.forgets("sender-position"):
            return
        self.move_read(number)
        self.move_delivered(number)
        self.marker, self.flagged = None, False


class Row:
    """One membership of a user, from joining to leaving."""

    def __init__(self, model, user, newest, is_hidden):
        self.user, self.tick, self.joined_at = user, model.next_tick(), model.window
        self.joined_seq, self.is_hidden = newest, is_hidden
        self.position = Position(model, user, 0 if is_hidden else newest, newest, newest)
        self.muted = self.left = False


class Acknowledgement(Step):
    """A row's acknowledgement of a message, with its note."""

    def __init__(self, model, row, note):
        super().__init__(model, row.user, "read", 0)
        self.row, self.note = row, note


class Message:
    """A message of a channel, or a reply in the thread of `parent`, with the rows that it mentions."""

    def __init__(self, tick, seq, parent, fields, mentions):
        self.tick, self.seq, self.parent, self.fields, self.mentions = tick, seq, parent, fields, mentions
        self.id, self.sender, self.created_at = fields["id"], fields.get("user_id"), fields["created_at"]
        self.silent, self.receipt = fields.get("silent", False), fields.get("receipt", False) and not parent
        self.deleted, self.replies, self.positions, self.acknowledgements = False, [], [], []

    def is_gone(self):
        return self.deleted or bool(self.parent and self.parent.deleted)

    def acknowledgement(self, row):
        return next((one for one in self.acknowledgements if one.row is row), None)


class ChannelState:
    """A channel's whole history, and the commands that change it."""

    def __init__(self, model, cid, options):
        self.model, self.cid, self.options = model, cid, {**DEFAULTS, **options}
        self.rows, self.messages, self.ids, self.log = [], [], {}, []

    # Members.

    def present(self):
        return [row for row in self.rows if not row.left]

    def row(self, user):
        return next((row for row in self.present() if row.user == user), None)

    def join(self, user):
        if not self.row(user):
            is_hidden = self.options["history"] == "hidden" and not self.model.forgets("hidden-history")
            self.rows.append(Row(self.model, user, len(self.messages), is_hidden))

    def leave(self, user):
        for row in self.present():
            row.left = row.left or row.user == user

    # Messages and threads.

    def exists_for(self, row, message):
        """Whether a row sees a message; `row` is None for a server (R6)."""
        return message is not None and not (row and row.is_hidden and message.tick < row.tick)

    def find(self, row, name):
        """A message or reply by its id, for a row or, where it is None, for a server."""
        message = self.ids.get(name)
        if not self.exists_for(row, message):
            raise Rejection(404, "message_not_found")
        if message.parent and message.parent.deleted:
            raise Rejection(409, "message_deleted")
        return message

    def thread(self, row, name):
        """The parent message of a thread (R6, R15)."""
        parent = self.ids.get(name)
        seen = parent and row and [reply for reply in parent.replies if reply.tick > row.tick]
        if not seen and not self.exists_for(row, parent):
            raise Rejection(404, "message_not_found")
        if parent.deleted:
            raise Rejection(409, "message_deleted")
        return parent

    def numbered(self, parent):
        """The messages of the channel, or the replies of a thread, by sequence number."""
        return parent.replies if parent else self.messages

    def base(self, row, parent):
        """The number of messages, or replies, that existed when the row's member joined."""
        return len([reply for reply in parent.replies if reply.tick < row.tick]) if parent else row.joined_seq

    def position(self, row, parent):
        if not parent:
            return row.position
        return next((position for other, position in parent.positions if other is row), None)

    def shows_readers_in_threads(self, row):
        """Whether others see that a member takes part in a thread by reading only (R7, R8, R15)."""
        return self.model.shows(row.user, "read") and self.options["read_events"]

    def enter(self, row, parent, since, is_shown):
        """The position of a row in a thread; a new one takes part from the reply after `since` on (R15)."""
        position = self.position(row, parent)
        if not position:
            position = Position(self.model, row.user, 0, since, since if is_shown else None)
            parent.positions.append((row, position))
        if is_shown and position.shown_since is None:
            position.shown_since = position.since
            if not self.shows_readers_in_threads(row):  # For others, the member enters now.
                position.shown_since = since
                parent.positions.sort(key=lambda pair: pair[0] is row)
        return position

    def parent_of_new_reply(self, fields):
        if "parent_id" not in fields:
            return None
        parent = self.ids.get(fields["parent_id"])
        if not parent:
            raise Rejection(404, "message_not_found")
        if parent.parent:
            raise Rejection(400, "invalid_field")
        if parent.deleted:
            raise Rejection(409, "message_deleted")
        return parent

    def add_participants(self, parent, sender, fields):
        """Adds the members who take part in a thread because of a new reply (R15)."""
        named = fields.get("mentions", [])
        if named == "all":
            named = []
        is_pair = len(self.present()) == 2 and not self.model.forgets("two-member-threads")
        joining = self.present() if is_pair else []
        if not parent.replies:
            joining.insert(0, self.row(parent.sender))
        for row in filter(None, joining + [sender] + [self.row(user) for user in named]):
            self.enter(row, parent, len(parent.replies), True)

    def register(self, fields):
        """The status of the answer, and the message (R5, R14, R15)."""
        known = self.ids.get(fields["id"])
        if known:
            if known.is_gone():
                raise Rejection(409, "message_deleted")
            compared = {"user_id": None, "parent_id": None, "silent": False, "receipt": False, "moves_position": True}
            if any(known.fields.get(name, default) != fields.get(name, default) for name, default in compared.items()):
                raise Rejection(409, "message_conflict")
            return 200, known
        parent, sender = self.parent_of_new_reply(fields), self.row(fields.get("user_id"))
        if parent:
            self.add_participants(parent, sender, fields)
        numbered, named = self.numbered(parent), fields.get("mentions", [])
        if fields.get("silent"):
            named = []
        rows = [row for row, _ in parent.positions if not row.left] if parent else self.present()
        mentioned = [row for row in rows if row is not sender and (named == "all" or row.user in named)]
        message = Message(self.model.next_tick(), len(numbered) + 1, parent, fields, mentioned)
        numbered.append(message)
        self.ids[message.id] = message
        if sender and fields.get("moves_position", True):
            self.position(sender, parent).sent(message.seq)
            if parent:
                sender.position.flagged = False
        return 201, message

    def delete(self, name):
        message = self.ids.get(name)
        if not message:
            raise Rejection(404, "message_not_found")
        message.deleted = True
        return message

    def truncate(self, before):
        for message in self.messages:
            message.deleted = message.deleted or not before or message.seq < self.ids[before].seq

    # Marks.

    def mark_read(self, row, name, thread, epoch):
        """The parent, if a thread is marked, and the reason why the mark is counted nowhere, if it is not (R2)."""
        message = self.find(row, name) if name else None
        parent = self.thread(row, thread) if thread else message.parent if message else None
        if message and message.parent is not parent:
            raise Rejection(404, "message_not_found")
        if parent and not parent.replies:
            return parent, "no_replies"
        newest = self.numbered(parent)[-1:]
        message = message or (newest[0] if newest else None)
        if parent:
            position = self.enter(row, parent, len(parent.replies), False)
            position.read(message.seq, epoch)
            row.position.flagged = row.position.flagged and position.is_stale(epoch)
            return parent, None if message.tick > row.tick else "registered_before"
        number = message.seq if message and not (row.is_hidden and message.seq <= row.joined_seq) else 0
        row.position.read(number, epoch)
        option = self.options["read_acks_receipts"]
        acknowledges = option == "always" or (option == "direct" and len(self.present()) == 2)
        if acknowledges and not self.model.forgets("read-acknowledges"):
            for message in self.messages[:number]:
                if message.receipt and not message.deleted and message.sender != row.user:
                    self.acknowledge(row, message, None)
        return None, "registered_before" if 0 < number <= row.joined_seq else None

    def mark_unread(self, row, name, thread, created, epoch):
        try:
            return self.mark_unread_where_allowed(row, name, thread, created, epoch)
        except Rejection as rejection:
            if self.options["mark_unread"] == "off":  # The rules leave open which of two errors is reported.
                rejection.alternative = (403, "mark_unread_off")
            raise

    def mark_unread_where_allowed(self, row, name, thread, created, epoch):
        message = self.find(row, name) if name else None
        parent = self.thread(row, thread) if thread else message.parent if message else None
        if self.options["mark_unread"] == "off":
            raise Rejection(403, "mark_unread_off")
        if parent and not parent.replies:
            return parent, "no_replies"
        position = self.position(row, parent)
        if not position:
            raise Rejection(409, "not_in_thread")
        if created or thread and not message:
            seen = [one for one in self.numbered(parent) if not row.is_hidden or one.tick > row.tick]
            later = [one for one in seen if not created or (one.created_at >= created and not one.deleted)]
            if not later:
                return parent, None
            message = later[0]
        if message:
            position.unread(message.seq, epoch)
        else:
            position.flag(epoch)
        return parent, None

    def mark_delivered(self, row, name, thread):
        """The reason why a delivery is counted nowhere, or None (R3, R15)."""
        if thread:
            self.thread(row, thread)
        message = self.find(row, name)
        if thread and (not message.parent or message.parent.id != thread):
            raise Rejection(404, "message_not_found")
        position = self.position(row, message.parent)
        if not position:
            return "not_in_thread"
        position.move_delivered(message.seq)
        takes_part = not message.parent or message.seq > position.since or message.seq <= position.watermark()
        counts = message.tick > row.tick and takes_part
        return None if counts else "registered_before"

    def acknowledge(self, row, message, note):
        """Records the first acknowledgement of a member who had joined by then (R9)."""
        known = message.acknowledgement(row)
        if row.joined_seq < message.seq and not known:
            message.acknowledgements.append(Acknowledgement(self.model, row, note))
        elif known and note and self.model.forgets("first-note"):
            known.note = note

    def refusals(self, row, name):
        """The codes that an acknowledgement may be refused with; empty if it is accepted (R9)."""
        message = self.ids.get(name)
        if not self.exists_for(row, message):
            return ["message_not_found"]
        if message.is_gone():
            return ["message_deleted"]
        codes = [] if message.receipt else ["receipt_not_requested"]
        is_expected = message.seq > row.joined_seq or message.acknowledgement(row)
        codes += [] if is_expected else ["not_expected"]
        return codes + (["own_message"] if message.sender == row.user else [])


class State:
    """All channels and users, and the time: a tick per change, and the window of the request being applied."""

    def __init__(self, forgotten=None):
        self.channels, self.hidden, self.ticks, self.forgotten = {}, set(), 0, forgotten
        self.window = Window(0, 0)

    def forgets(self, rule):
        assert rule in RULES, rule
        return rule == self.forgotten

    def next_tick(self):
        self.ticks += 1
        return self.ticks

    def shows(self, user, kind):
        return (user, kind) not in self.hidden or self.forgets("privacy")

    def set_privacy(self, user, kind, enabled):
        """Hides or shows a kind; moves that were made while hidden count from now on (R7)."""
        if not enabled:
            self.hidden.add((user, kind))
            return
        was_hidden = (user, kind) in self.hidden
        self.hidden.discard((user, kind))
        for channel in self.channels.values():
            messages = list(channel.ids.values())
            positions = [row.position for row in channel.rows if row.user == user]
            positions += [one for message in messages for row, one in message.positions if row.user == user]
            steps = [one for at in positions for one in (at.reads if kind == "read" else at.deliveries)]
            if kind == "read":
                steps += [one for message in messages for one in message.acknowledgements if one.row.user == user]
            for step in steps:
                if step.shown is None or (was_hidden and not step.exact):
                    step.shown = self.window

    def rows_of(self, user):
        """A user's channels and rows, by channel id."""
        found = [(channel, channel.row(user)) for _, channel in sorted(self.channels.items())]
        return [(channel, row) for channel, row in found if row]
