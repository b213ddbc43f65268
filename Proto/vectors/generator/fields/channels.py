"""The fields of channels, members, messages and users, and of the index of users' channels."""

from .notation import byte, many, number, opt, options, string, time
from .values import CID


def row(user, read=(0, "", 0), delivered=(0, "", 0), own=None, flags=1, mentions=0, joined=None):
    """`flags`: of a row with own details: 1, or 3 and 7 of the viewer's own."""
    fields = [
        string("user", user),
        time("last_read", read[0]),
        string("last_read_message", read[1]),
        number("last_read_sequence", read[2]),
        time("last_delivered", delivered[0]),
        string("last_delivered_message", delivered[1]),
        number("last_delivered_sequence", delivered[2]),
        number("flags", (0 if own is None else flags) | (0 if joined is None else 64)),
    ]
    if own is not None:
        fields += [
            number("unread_messages", own[0]),
            string("first_unread_message", own[1]),
            number("unread_epoch", own[2]),
        ]
        if flags & 2:
            fields.append(number("unread_mentions", mentions))
    if joined is not None:
        fields.append(number("joined_sequence", joined))
    return fields


def channel(cid, created, own_options, members, newest, newest_message, registered):
    return [
        string("cid", cid),
        time("created", created),
        options("options", own_options),
        number("member_count", members),
        number("newest_sequence", newest),
        string("newest_message", newest_message),
        time("newest_registered", registered),
    ]


def status(sequence, state, read, delivered, members, flags, created, acknowledged_=None, receipt_=0):
    return [
        number("sequence", sequence),
        byte("status", state),
        byte("receipt_status", receipt_),
        number("read_count", read),
        number("delivered_count", delivered),
        number("unread_count", members - read),
        number("member_count", members),
        number("flags", flags),
        time("created", created),
    ] + ([] if acknowledged_ is None else [number("acknowledged_count", acknowledged_)])


def type_record(name, version, values):
    return [string("type", name), number("version", version), options("options", values)]


def user_settings(user, version=0, flags=0, read_since=0, delivered_since=0, revoked=0):
    return [
        string("user", user), number("version", version), number("flags", flags), time("read_shown_since", read_since),
        time("delivered_shown_since", delivered_since), time("tokens_revoked_before", revoked)]


def entry(user, when=0, exact=0, note=""):
    return [string("user", user), time("time", when), byte("exact", exact), string("note", note)]


def member_status(user, state, read=0, delivered=0, flags=3, acknowledged_=None):
    return [string("user", user), number("found", 0), byte("status", state), time("read", read),
            time("delivered", delivered), byte("flags", flags)] + (
                [] if acknowledged_ is None else [time("acknowledged", acknowledged_)])


def request(cid=CID, counter=None, *rest):
    return [string("cid", cid)] + ([] if counter is None else [number("counter", counter)]) + list(rest)


def typed(name, counter=None, *rest):
    return [string("type", name)] + ([] if counter is None else [number("counter", counter)]) + list(rest)


def settings_of(user, counter, *rest):
    return [string("user", user), number("counter", counter), *rest]


def messages(*ids):
    return many("messages", [[string("message", id)] for id in ids])


def viewed(viewer, message_id, flags=0):
    return request(CID, None, number("viewer_flags", flags), string("viewer", viewer), string("message", message_id))


def page_of_members(viewer, message_id, kind, order, limit, cursor, flags=0):
    return viewed(viewer, message_id, flags) + [
        byte("list", kind), byte("order", order), number("limit", limit), string("cursor", cursor)]


def members(name, *pairs):
    return many(name, [[string("user", user), string("role", role)] for user, role in pairs])


def reminders(*rules):
    return many("reminders", [[number("after", a), byte("when", w), number("limit", n)] for a, w, n in rules])


def channel_entry(cid, row_number, member, joined, deleted=None):
    fields = [string("cid", cid), opt("row", row_number), byte("member", member), time("joined", joined)]
    return fields + ([] if deleted is None else [time("deleted", deleted)])


def unread_of(*entries):
    return [many("channels",
                 [[string("cid", cid), string("user", user), number("row", n)] for cid, user, n in entries])]


def unread(messages_, threads, flags=0, mentions=0):
    return [
        number("found", 0), number("unread_messages", messages_), number("unread_threads", threads),
        number("unread_mentions", mentions), byte("unread_flags", flags)]


def list_channels_of(user, flags, limit, cursor, since=None):
    fields = [string("user", user), number("flags", flags), number("limit", limit), opt("cursor", cursor)]
    return fields + ([] if since is None else [time("since", since)])


def membership(cid, channel_number, row_number, member, joined, epoch, deleted=None):
    fields = [string("cid", cid), number("channel_there", channel_number), opt("row", row_number),
              byte("member", member), time("joined", joined), number("epoch", epoch)]
    return fields + ([] if deleted is None else [time("deleted", deleted)])


def rebuild(phase, epoch, done=0, channels=0, entries=0):
    return [byte("phase", phase), number("epoch", epoch), number("channels_done", done), number("channels", channels),
            number("entries", entries)]
