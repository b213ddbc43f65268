"""The fields of subscriptions and events."""

from .channels import row
from .notation import byte, many, number, opt, string, time
from .values import T0


def channels(*cids):
    return many("channels", [[string("cid", cid)] for cid in cids])


def subscribe(flags, since, *cids):
    return [number("flags", flags), time("since", since), channels(*cids)]


def named(prefix, fields):
    return [[prefix + name, notation, value] for name, notation, value in fields]


def row_event(own, shown, when, own_row, shown_row=None, thread="", unread_in_channel=None):
    fields = [byte("event", 1), string("thread", thread), byte("own", own), byte("shown", shown), time("time", when),
              opt("unread_in_channel", unread_in_channel)]
    return fields + own_row + ([] if shown_row is None else named("shown_", shown_row))


def message_new(sequence, message_id, sender, registered, created, flags, thread=""):
    return [byte("event", 2), string("thread", thread), number("sequence", sequence), string("message", message_id),
            string("sender", sender), time("registered", registered), time("created", created),
            byte("message_flags", flags)]


def message_deleted_event(sequence, message_id, when, thread=""):
    return [byte("event", 3), string("thread", thread), number("sequence", sequence), string("message", message_id),
            time("time", when)]


def truncated_event(sequence, when):
    return [byte("event", 4), number("sequence", sequence), time("time", when)]


def channel_updated(when, fields):
    return [byte("event", 5), time("time", when)] + fields


def channel_deleted_event(when):
    return [byte("event", 6), time("time", when)]


def member_added(user, role, when, count, sequence=0, message_id="", joined=0):
    return [byte("event", 7), string("user", user), string("role", role), time("time", when),
            number("member_count", count), number("sequence", sequence), string("message", message_id),
            number("joined_sequence", joined)]


def limits(*entries):
    """(from, through, hidden, joined)…, of the next event."""
    return [byte("event", 32), many("limits", [
        [time("from", first), time("through", last), byte("hidden", hidden), number("joined_sequence", joined)]
        for first, last, hidden, joined in entries])]


def member_removed(user, when, count):
    return [byte("event", 8), string("user", user), time("time", when), number("member_count", count)]


def status_event(sender, first, last, message_id, state, when, thread=""):
    return [byte("event", 9), string("thread", thread), string("sender", sender), number("from", first),
            number("to", last), string("message", message_id), byte("status", state), time("time", when)]


def receipt_event(sequence, message_id, sender, state, read, unread_, user, note, when, acknowledged_=0,
                  acknowledged_at=0):
    return [byte("event", 10), number("sequence", sequence), string("message", message_id), string("sender", sender),
            byte("receipt_status", state), number("read_count", read), number("unread_count", unread_),
            string("user", user), string("note", note), time("time", when),
            number("acknowledged_count", acknowledged_), time("acknowledged_at", acknowledged_at)]


def membership_event(fields, when, gone):
    return [byte("event", 1)] + fields + [time("time", when), byte("gone", gone)]


def tokens_revoked_event(when):
    return [byte("event", 2), time("time", when)]


def channel_events(*pairs):
    """(cid, [event…])…"""
    return many("channels", [[string("cid", cid), many("events", events)] for cid, events in pairs])


def user_events(*pairs):
    return many("users", [[string("user", user), many("events", events)] for user, events in pairs])


def told(through, lost=0, of_channels=(), of_users=()):
    return [time("through", through), byte("lost", lost), channel_events(*of_channels), user_events(*of_users)]


def subscribed(through, complete=1, *of_channels):
    return [time("through", through), byte("complete", complete), channel_events(*of_channels)]


# Bob has read up to m-42: the row of his own devices, and the row that others see.
BOB_OWN = row("bob", (T0 + 7, "m-42", 42), (T0 + 7, "m-42", 42), (3, "m-43", 1))
BOB_SHOWN = row("bob", (T0 + 7, "m-42", 42), (T0 + 7, "m-42", 42))
