"""Batches that are refused."""

from ..fields.channels import membership, type_record, user_settings
from ..fields.feed import consumer, partition
from ..fields.notation import blob, byte, many, number, opt, options, raw, string, time, varint
from ..fields.values import CID, T0
from .effects import EFFECTS, acknowledged, at, effect_bytes, feed_worker, message, of_page, whole_row


def bad_batch(name, refusal, data):
    return {"name": name, "refusal": refusal, "hex": data.hex()}


MOVE = effect_bytes("read_moved", at(1, 0) + [number("sequence", 1), time("time", T0)])


def batch_of(*effects, count=None):
    announced = len(effects) if count is None else count
    return b"\x01" + varint(1) + varint(T0) + b"\x00" + varint(announced) + b"".join(effects)


BAD_BATCHES = [
    bad_batch("empty", "truncated", b""),
    bad_batch("another format", "badValue:format", b"\x02" + batch_of()[1:]),
    bad_batch("cut in its time", "truncated", batch_of()[:4]),
    bad_batch("more behind it", "trailingBytes", batch_of(MOVE) + b"\x00"),
    bad_batch("an effect less than announced", "badValue:count", batch_of(count=1)),
    bad_batch("effect 15, the one after delivered_by_push_ack_hidden", "badValue:effect", batch_of(b"\x0f\x01\x00")),
    bad_batch("effect 68, the one after index_epoch_assigned", "badValue:effect", batch_of(b"\x44\x01\x00")),
    bad_batch("wide ids with something behind it", "badValue:effect", batch_of(b"\x15\x01\x00")),
    bad_batch("a push job cut in its users", "badValue:count", batch_of(b"\x35\x06\x00\x01\x00\x00\x00\x01")),
    bad_batch("a push job beyond the last number", "badValue:effect",
              batch_of(effect_bytes("push_job_removed", [number("number", 2**20)]))),
    bad_batch("effect 63, the one before membership_queued", "badValue:effect", batch_of(b"\x3f\x01\x00")),
    bad_batch("effect 68, of a later version", "badValue:effect", batch_of(b"\x44\x01\x00")),
    bad_batch("an effect longer than its fields", "badValue:effect",
              batch_of(bytes([MOVE[0], MOVE[1] + 1]) + MOVE[2:] + b"\x00")),
    bad_batch("an effect shorter than its fields", "badValue:effect",
              batch_of(bytes([MOVE[0], MOVE[1] - 1]) + MOVE[2:])),
    bad_batch("an effect longer than the batch", "truncated", batch_of(bytes([MOVE[0], MOVE[1] + 1]) + MOVE[2:])),
    bad_batch("channel number 0", "badValue:effect",
              batch_of(effect_bytes("read_moved", at(0, 0) + [number("sequence", 1), time("time", T0)]))),
    bad_batch("message number 0", "badValue:effect",
              batch_of(effect_bytes("message_deleted", at(1) + [number("sequence", 0), time("time", T0)]))),
    bad_batch("row 2^24", "badValue:effect", batch_of(effect_bytes("row_left", at(1, 1 << 24) + [time("time", T0)]))),
    bad_batch("row flags 64, and counted from its own place on", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 64, "a", "", 3, T0, 0, 0, 0, 0, None, 0, counted_after=3)))),
    bad_batch("row flags 64 without the reply", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 64, "a", "", 3, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 128, and unread from its own place on", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 128, "a", "", 3, T0, 0, 0, 0, 0, None, 0, unread_after=3)))),
    bad_batch("row flags 2,048", "badValue:flags",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 2048, "a", "", 0, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 16 without what follows", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 16, "a", "", 0, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 32 without what follows", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 32, "a", "", 0, T0, 0, 0, 1, T0, None, 0)))),
    bad_batch("a row acknowledged when it moved", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 32, "a", "", 0, T0, 0, 0, 1, T0, None, 0, acked_at=T0)))),
    bad_batch("a row acknowledged at no time", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 32, "a", "", 0, T0, 0, 0, 1, T0, None, 0, acked_at=0)))),
    bad_batch("delivered_by_push_ack after it moved", "badValue:effect", batch_of(effect_bytes(
        "delivered_by_push_ack", at(1, 0) + [number("sequence", 1), time("time", T0), time("acked", T0 + 1)]))),
    bad_batch("delivered_by_push_ack at no time", "badValue:effect", batch_of(effect_bytes(
        "delivered_by_push_ack", at(1, 0) + [number("sequence", 1), time("time", T0), time("acked", 0)]))),
    bad_batch("delivered_by_push_ack without its time, at the end", "truncated", batch_of(effect_bytes(
        "delivered_by_push_ack", at(1, 0) + [number("sequence", 1), time("time", T0)]))),
    bad_batch("a webhook whose hash is cut", "truncated", batch_of(effect_bytes("webhook_noted", [raw("hash", "00")]))),
    bad_batch("a token without its version", "truncated", batch_of(effect_bytes(
        "token_revoked", [string("jti", "a"), time("until", 5)]))),
    bad_batch("effect 56, the one after names_lost", "badValue:effect", batch_of(b"\x38\x01\x00")),
    bad_batch("deletion_held without its number", "truncated", batch_of(effect_bytes(
        "deletion_held", [string("consumer", ""), number("channel", 7), string("cid", "team:a")]))),
    bad_batch("deletion_held whose cid is no UTF-8", "badValue:text", batch_of(effect_bytes(
        "deletion_held",
        [string("consumer", ""), number("channel", 7), blob("cid", "c328"), number("needed_before", 1)]))),
    bad_batch("deletion_ended with more behind it", "badValue:effect", batch_of(effect_bytes(
        "deletion_ended", [string("consumer", ""), number("channel", 7), byte("more", 0)]))),
    bad_batch("a consumer without its epoch, at the end", "truncated",
              batch_of(effect_bytes("consumer_assigned", consumer("a")[:-1]))),
    bad_batch("a consumer with more behind it", "badValue:effect",
              batch_of(effect_bytes("consumer_assigned", consumer("a") + [byte("more", 0)]))),
    bad_batch("a consumer whose name is no UTF-8", "badValue:text",
              batch_of(effect_bytes("consumer_removed", [blob("consumer", "c328")]))),
    bad_batch("a consumer's types of records above 32 bits", "badVarint",
              batch_of(effect_bytes("consumer_assigned", consumer("a", 2**32)))),
    bad_batch("a consumer's partition above 16 bits", "badVarint",
              batch_of(effect_bytes("consumer_assigned", consumer("a", index=2**16)))),
    bad_batch("consumer_committed at a time above 63 bits", "badVarint", batch_of(effect_bytes(
        "consumer_committed", [
            string("consumer", "a"), number("number", 1), time("position_time", 2**63), time("committed_at", 0)]))),
    bad_batch("consumer_opened with partitions above 16 bits", "badVarint", batch_of(effect_bytes(
        "consumer_opened", [string("consumer", "a"), *partition(0, 2**16), number("epoch", 1)]))),
    bad_batch("a consumer's state longer than the batch", "truncated", batch_of(
        bytes([EFFECTS["consumer_state_assigned"], 6]) + b"\x01a\x00\x01\x09\x00")),
    bad_batch("more workers than there can be", "badValue:count", batch_of(effect_bytes(
        "consumer_workers_assigned", [string("consumer", "a"), number("workers", 2)] + feed_worker("", 0, 0)))),
    bad_batch("a worker's partition above 16 bits", "badVarint", batch_of(effect_bytes(
        "consumer_workers_assigned", [string("consumer", "a"), many("workers", [feed_worker("w", 4, T0, 2**16)])]))),
    bad_batch("consumer_removed with more behind it", "badValue:effect",
              batch_of(effect_bytes("consumer_removed", [string("consumer", "a"), byte("more", 0)]))),
    bad_batch("feed_switched without its time", "truncated",
              batch_of(effect_bytes("feed_switched", [string("consumer", "")]))),
    bad_batch("feed_switched at a time above 63 bits", "badVarint",
              batch_of(effect_bytes("feed_switched", [string("consumer", ""), time("off_since", 2**63)]))),
    bad_batch("feed_switched with more behind it", "badValue:effect",
              batch_of(effect_bytes("feed_switched", [string("consumer", ""), time("off_since", 0), byte("more", 0)]))),
    bad_batch("a marker without its time", "truncated", batch_of(effect_bytes(
        "marker_assigned", at(1, 3) + [opt("marker", 0), number("unread_epoch", 1)]))),
    bad_batch("a type without its time", "truncated",
              batch_of(effect_bytes("channel_type_assigned", type_record("a", 1, {})))),
    bad_batch("settings without their time", "truncated",
              batch_of(effect_bytes("user_assigned", [number("number", 0)] + user_settings("alice", 1)))),
    bad_batch("changed options of channel 0", "badValue:effect",
              batch_of(effect_bytes("options_changed", at(0) + [time("time", T0)]))),
    bad_batch("row flags 4 without what follows", "truncated",
              batch_of(effect_bytes("row_assigned", whole_row(1, 0, 4, "a", "", 0, T0, 0, 0, 0, 0, None, 0)))),
    bad_batch("row flags 0 with more behind them", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 0, "a", "", 0, T0, 0, 0, 0, 0, None, 0, (1, 0, 0, 0))))),
    bad_batch("row hidden 4", "badValue:flags", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 4, "a", "", 0, T0, 0, 0, 0, 0, None, 0, (4, 0, 0, 0))))),
    bad_batch("row with steps above 32 bits", "badVarint", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 0, 4, "a", "", 0, T0, 0, 0, 0, 0, None, 0, (0, 2**32, 0, 0))))),
    bad_batch("message flags 512", "badValue:flags",
              batch_of(effect_bytes("message_assigned", message(1, 1, 512, "m", "a", T0, 0)))),
    bad_batch("message flags 256", "badValue:flags",
              batch_of(effect_bytes("message_assigned", message(1, 1, 256, "m", "a", T0, 0)))),
    bad_batch("a receipt without its expiry, at the end", "truncated",
              batch_of(effect_bytes("message_assigned", message(1, 1, 8, "m", "a", T0, 0)))),
    bad_batch("a receipt without its expiry, and another effect", "badValue:effect",
              batch_of(effect_bytes("message_assigned", message(1, 1, 8, "m", "a", T0, 0)), MOVE)),
    bad_batch("an expiry without a receipt", "badValue:effect",
              batch_of(effect_bytes("message_assigned", message(1, 1, 0, "m", "a", T0, 0, T0)))),
    bad_batch("a note of 1,025 bytes", "badValue:text",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 1, 0, 0, T0, "n" * 1025)))),
    bad_batch("a note that is no UTF-8", "badValue:text", batch_of(effect_bytes(
        "acknowledged", acknowledged(1, 1, 0, 0, T0, "")[:-1] + [blob("note", "c328")]))),
    bad_batch("acknowledged with flag 2", "badValue:flags",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 1, 0, 2, T0, "")))),
    bad_batch("acknowledged, message 0", "badValue:effect",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 0, 0, 0, T0, "")))),
    bad_batch("acknowledged, row 2^24", "badValue:effect",
              batch_of(effect_bytes("acknowledged", acknowledged(1, 1, 1 << 24, 0, T0, "")))),
    bad_batch("a forgotten one of channel 0", "badValue:effect", batch_of(effect_bytes(
        "acknowledgement_forgotten", at(0) + [number("sequence", 1), number("row", 0)]))),
    bad_batch("steps of row page 65536", "badValue:effect", batch_of(effect_bytes(
        "steps_sealed", of_page(1, 65536, number("segment", 0), blob("steps", ""))))),
    bad_batch("steps longer than the batch", "truncated", batch_of(
        bytes([EFFECTS["steps_sealed"], 5]) + b"\x01\x00\x00" + b"\x09\x00")),
    bad_batch("a tail of more segments than there can be", "badValue:count", batch_of(effect_bytes(
        "step_tail_assigned", of_page(1, 0, number("first", 0), number("ends", 9), blob("steps", ""))))),
    bad_batch("settings with flag 16", "badValue:flags",
              batch_of(effect_bytes("user_assigned", [number("number", 0)] + user_settings("alice", 1, 16)))),
    bad_batch("settings of an erased user", "badValue:flags",
              batch_of(effect_bytes("user_assigned", [number("number", 0)] + user_settings("alice", 1, 8)))),
    bad_batch("a user's number above 32 bits", "badVarint",
              batch_of(effect_bytes("user_settled", [number("number", 2**32), number("version", 1)]))),
    bad_batch("an option's value cut in a channel", "badValue:optionValue", batch_of(effect_bytes(
        "channel_assigned", at(1) + [string("cid", CID), time("created", T0), options("own", {11: "02"})]))),
    bad_batch("an option twice in a type", "badValue:option", batch_of(effect_bytes(
        "channel_type_assigned",
        [string("type", "a"), number("version", 1), many("options", [
            [number("option", 12), blob("value", "00")], [number("option", 12), blob("value", "00")]])]))),
    # Removal.
    bad_batch("truncated up to message 0", "badValue:effect",
              batch_of(effect_bytes("truncated", at(1) + [number("sequence", 0), time("time", T0)]))),
    bad_batch("truncated, channel 0", "badValue:effect",
              batch_of(effect_bytes("truncated", at(0) + [number("sequence", 1), time("time", T0)]))),
    bad_batch("truncated without its time, at the end", "truncated",
              batch_of(effect_bytes("truncated", at(1) + [number("sequence", 1)]))),
    bad_batch("deletion_begun, channel 0", "badValue:effect", batch_of(effect_bytes("deletion_begun", at(0)))),
    bad_batch("channel_deleted, channel 0", "badValue:effect",
              batch_of(effect_bytes("channel_deleted", at(0) + [string("cid", CID)]))),
    bad_batch("channel_deleted whose cid is no UTF-8", "badValue:text",
              batch_of(effect_bytes("channel_deleted", at(1) + [blob("cid", "c328")]))),
    bad_batch("row_erased, row 2^24", "badValue:effect",
              batch_of(effect_bytes("row_erased", at(1, 1 << 24) + [time("time", T0)]))),
    bad_batch("sender_erased, message 0", "badValue:effect",
              batch_of(effect_bytes("sender_erased", at(1) + [number("sequence", 0)]))),
    bad_batch("user_erased with a hash of 7 bytes, at the end", "truncated", batch_of(effect_bytes(
        "user_erased", [number("number", 0), number("version", 1), raw("hash", "00" * 7)]))),
    bad_batch("user_erased with a hash of 9 bytes", "badValue:effect", batch_of(effect_bytes(
        "user_erased", [number("number", 0), number("version", 1), raw("hash", "01" * 9), time("time", T0)]))),
    bad_batch("message counts of more segments than there can be bytes", "badValue:count", batch_of(effect_bytes(
        "message_counts_assigned", at(1) + [number("newest", 2**32 - 1), number("counts", 9)]))),
    bad_batch("message counts of a segment that there is not", "badValue:count", batch_of(effect_bytes(
        "message_counts_assigned", at(1) + [
            number("newest", 256), many("counts", [[number("count", 1)], [number("count", 1)]])]))),
    bad_batch("a segment in which 257 messages count", "badValue:count", batch_of(effect_bytes(
        "message_counts_assigned", at(1) + [number("newest", 256), many("counts", [[number("count", 257)]])]))),
    bad_batch("a row flagged unread without a time", "badValue:effect", batch_of(effect_bytes(
        "row_assigned", whole_row(1, 5, 512, "erin", "", 0, T0, 1, T0, 0, 0, None, 2)))),
    bad_batch("mentions of nobody", "badValue:count", batch_of(effect_bytes(
        "message_assigned", message(1, 1, 128, "m", "a", T0, 0) + [byte("all", 0), many("mentions", [])]))),
    bad_batch("mentions of a row twice", "badValue:effect", batch_of(effect_bytes(
        "message_assigned", message(1, 1, 128, "m", "a", T0, 0) + [
            byte("all", 0), many("mentions", [[number("row", 3)]] * 2)]))),
    bad_batch("mentions assigned to a row twice", "badValue:effect", batch_of(effect_bytes(
        "mentions_assigned",
        at(1) + [number("sequence", 1), many("rows", [[number("row", 3)]] * 2), many("users", [])]))),
    bad_batch("mentions assigned to a user twice", "badValue:effect", batch_of(effect_bytes(
        "mentions_assigned",
        at(1) + [number("sequence", 1), many("rows", []), many("users", [[raw("hash", "01" * 8)]] * 2)]))),
    bad_batch("mentions assigned to message 0", "badValue:effect", batch_of(effect_bytes(
        "mentions_assigned", at(1) + [number("sequence", 0), many("rows", []), many("users", [])]))),
    bad_batch("imported steps of a page that no channel has", "badValue:effect", batch_of(effect_bytes(
        "steps_imported", of_page(1, 65536, blob("steps", ""))))),
    bad_batch("mute 2", "badValue:flags", batch_of(effect_bytes("mute_assigned", at(1, 0) + [byte("muted", 2)]))),
    bad_batch("a segment without a note", "badValue:flags", batch_of(effect_bytes(
        "segment_flags_assigned", at(1) + [many("segments", [[number("segment", 0), byte("what", 0)]])]))),
    bad_batch("a segment noted twice", "badValue:flags", batch_of(effect_bytes(
        "segment_flags_assigned", at(1) + [many("segments", [[number("segment", 3), byte("what", 1)]] * 2)]))),
    # The index.
    bad_batch("a membership in index 0", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(0) + [number("place", 0)] + membership(CID, 1, 0, 1, T0, 0)))),
    bad_batch("a membership in channel 0", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 0, 0, 1, T0, 0)))),
    bad_batch("a membership of row 2^24", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 1 << 24, 1, T0, 0)))),
    bad_batch("a membership: member 4, a tombstone without its time", "badValue:flags", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 4, T0, 0)))),
    bad_batch("a membership: member 7, a tombstone of a member", "badValue:flags", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 7, T0, 0, T0)))),
    bad_batch("a membership: member 8", "badValue:flags", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 8, T0, 0)))),
    bad_batch("a membership that was deleted at no time", "badValue:effect", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 2, T0, 0, 0)))),
    bad_batch("a membership without the time at which it was deleted", "truncated", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 2, T0, 0)))),
    bad_batch("a membership at a place above 32 bits", "badVarint", batch_of(effect_bytes(
        "membership_removed", at(7) + [number("place", 2**32)]))),
    bad_batch("a membership without its epoch, at the end", "truncated", batch_of(effect_bytes(
        "membership_assigned", at(7) + [number("place", 0)] + membership(CID, 1, 0, 1, T0, 0)[:-1]))),
    bad_batch("a change of number 0", "badValue:effect", batch_of(effect_bytes(
        "membership_queued", [number("number", 0), string("user", "a"), byte("gone", 0)]
        + membership(CID, 1, 0, 1, T0, 0)))),
    bad_batch("a change: gone 2", "badValue:effect", batch_of(effect_bytes(
        "membership_queued", [number("number", 1), string("user", "a"), byte("gone", 2)]
        + membership(CID, 1, 0, 1, T0, 0)))),
    bad_batch("sent to shard 65536", "badValue:effect",
              batch_of(effect_bytes("memberships_confirmed", [number("shard", 65536), number("through", 1)]))),
    bad_batch("taken from shard 65536", "badValue:effect",
              batch_of(effect_bytes("memberships_received", [number("shard", 65536), number("through", 1)]))),
    bad_batch("an epoch with more behind it", "badValue:effect",
              batch_of(effect_bytes("index_epoch_assigned", [number("epoch", 1), byte("more", 0)]))),
    # Threads.
    bad_batch("in thread 0", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 0), ["inner", "effect", "read_moved"]]))),
    bad_batch("in a thread: nothing, at the end", "truncated",
              batch_of(effect_bytes("in_thread", [number("parent", 1)]))),
    bad_batch("in a thread: an unknown effect", "badValue:effect",
              batch_of(effect_bytes("in_thread", [number("parent", 1), raw("inner", "0f0100")]))),
    bad_batch("in a thread: an effect, and more behind it", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), ["inner", "effect", "read_moved"], byte("more", 0)]))),
    bad_batch("in a thread: an effect longer than its bytes", "truncated", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), raw("inner", bytes([MOVE[0], MOVE[1] + 1]).hex() + MOVE[2:].hex())]))),
    bad_batch("in a thread: in a thread", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), ["inner", "effect", "in_thread: read_moved"]]))),
] + [
    bad_batch(f"in a thread: {name}", "badValue:effect", batch_of(effect_bytes(
        "in_thread", [number("parent", 1), ["inner", "effect", name]])))
    for name in ("channel_assigned", "role_assigned", "acknowledged", "acknowledgement_forgotten",
                 "acknowledged_through", "steps_sealed", "truncated", "deletion_begun", "channel_deleted",
                 "message_counts_assigned", "segment_flags_assigned", "mute_assigned", "unread_flag_assigned",
                 "membership_assigned", "membership_removed", "options_changed", "channel_type_assigned",
                 "type_settled", "counters_assigned", "session_assigned", "user_assigned", "user_settled",
                 "user_erased", "membership_queued", "memberships_confirmed", "memberships_received",
                 "index_epoch_assigned", "webhook_noted", "ids_widened", "token_revoked", "consumer_assigned",
                 "consumer_committed", "consumer_opened", "consumer_state_assigned", "consumer_workers_assigned",
                 "consumer_removed", "feed_switched", "deletion_held", "deletion_ended", "names_lost",
                 "timer_assigned", "timer_removed", "push_job_assigned", "push_job_removed")
]
