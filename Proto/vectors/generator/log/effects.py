"""Effects by their numbers, and the fields of effects."""

from ..fields.feed import indexes
from ..fields.notation import EFFECT_BYTES, encode_all, many, number, opt, raw, string, time, varint
from ..fields.values import SESSION

EFFECTS = {
    "channel_assigned": 1, "row_assigned": 2, "row_left": 3, "role_assigned": 4, "read_moved": 5,
    "delivered_moved": 6, "marker_assigned": 7, "message_assigned": 8, "message_deleted": 9, "read_moved_hidden": 10,
    "delivered_moved_hidden": 11, "delivered_by_push_ack": 13, "delivered_by_push_ack_hidden": 14,
    "channel_type_assigned": 16, "counters_assigned": 17, "session_assigned": 18, "type_settled": 19,
    "webhook_noted": 20, "ids_widened": 21, "token_revoked": 22,
    "consumer_assigned": 23, "consumer_committed": 24, "consumer_opened": 25, "consumer_state_assigned": 26,
    "consumer_workers_assigned": 27, "consumer_removed": 28, "feed_switched": 29, "deletion_held": 30,
    "deletion_ended": 31, "names_lost": 55, "timer_assigned": 51, "timer_removed": 52, "push_job_assigned": 53,
    "push_job_removed": 54, "acknowledged": 32, "acknowledgement_forgotten": 33, "acknowledged_through": 34,
    "steps_sealed": 35, "step_tail_cut": 36, "steps_trimmed": 37, "step_tail_assigned": 38, "truncated": 39,
    "channel_deleted": 40, "in_thread": 41, "row_erased": 42, "sender_erased": 43, "message_counts_assigned": 44,
    "membership_assigned": 45, "membership_removed": 46, "deletion_begun": 47, "user_assigned": 48, "user_settled": 49,
    "options_changed": 12, "user_erased": 50, "segment_flags_assigned": 58, "mute_assigned": 59,
    "unread_flag_assigned": 60, "membership_queued": 64, "memberships_confirmed": 65, "memberships_received": 66,
    "index_epoch_assigned": 67, "mentions_assigned": 70, "steps_imported": 71,
}


def effect_bytes(kind, fields):
    content = encode_all(fields)
    return bytes([EFFECTS[kind]]) + varint(len(content)) + content


def effect(kind, *fields, name=None):
    fields = list(fields)
    data = effect_bytes(kind, fields)
    assert EFFECT_BYTES.setdefault(name or kind, data) is data, f"two effects of one name: {name or kind}"
    return {"name": name or kind, "effect": kind, "fields": fields, "hex": data.hex()}


def in_thread(parent, inner):
    return effect("in_thread", number("parent", parent), ["inner", "effect", inner], name=f"in_thread: {inner}")


def session_record(counter, not_applied, written, session=SESSION):
    return [raw("session", session), number("highest", counter),
            many("not_applied", [[number("counter", n)] for n in not_applied]), time("last_written", written)]


def at(channel_number, row_number=None):
    fields = [number("channel", channel_number)]
    return fields + ([] if row_number is None else [number("row", row_number)])


def whole_row(channel_number, row_number, flags, user, role, joined, joined_at, read, read_at, delivered, delivered_at,
              marker, epoch, more=None, marked_at=None, acked_at=None, counted_after=None,
              unread_after=None, flagged_at=None):
    """`more`: hidden, read steps, delivered steps, acknowledged through; where the flag 4 says so. `marked_at`: where
    16 does, `acked_at`: where 32 does, `counted_after`: where 64 does, `unread_after`: where 128 does, `flagged_at`:
    where 1024 does."""
    fields = at(channel_number, row_number) + [
        number("flags", flags), string("user", user), string("role", role), number("joined", joined),
        time("joined_at", joined_at), number("read", read), time("read_at", read_at), number("delivered", delivered),
        time("delivered_at", delivered_at), opt("marker", marker), number("unread_epoch", epoch)]
    if marked_at is not None:
        fields.append(time("marked_at", marked_at))
    if acked_at is not None:
        fields.append(time("acked_at", acked_at))
    if counted_after is not None:
        fields.append(number("counted_after", counted_after))
    if unread_after is not None:
        fields.append(number("unread_after", unread_after))
    if flagged_at is not None:
        fields.append(time("flagged_at", flagged_at))
    if more is not None:
        names = ("hidden", "read_steps", "delivered_steps", "acknowledged_through")
        fields += [number(name, value) for name, value in zip(names, more, strict=True)]
    return fields


def message(channel_number, sequence, flags, id, sender, registered, created, expires=None):
    return at(channel_number) + [
        number("sequence", sequence), number("flags", flags), string("id", id), string("sender", sender),
        time("registered", registered), time("created", created)] + (
            [] if expires is None else [time("receipt_expires", expires)])


def acknowledged(channel_number, sequence, row_number, flags, when, note):
    return at(channel_number) + [
        number("sequence", sequence), number("row", row_number), number("flags", flags), time("time", when),
        string("note", note)]


def of_page(channel_number, row_page, *rest):
    return at(channel_number) + [number("row_page", row_page), *rest]


def feed_worker(name, partitions, until, *held):
    return [string("worker", name), number("partitions", partitions), time("until", until), indexes("held", *held)]
