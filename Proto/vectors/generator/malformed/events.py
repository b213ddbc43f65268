"""Malformed frames of subscriptions and events."""

from ..fields.channels import channel, channel_entry, row
from ..fields.events import (
    BOB_OWN, BOB_SHOWN, channel_deleted_event, channel_updated, limits, member_added, member_removed, membership_event,
    message_deleted_event, message_new, receipt_event, row_event, status_event, subscribe, subscribed,
    tokens_revoked_event, told, truncated_event)
from ..fields.notation import byte, encode_all
from ..fields.values import CID, T0
from ..framing import altered, bad
from .payloads import SUBSCRIBE, bad_event, bad_user_event

BAD_EVENTS = [
    # Events.
    bad("subscribe without its channels", "truncated", altered("subscribe", b"\x00\x00")),
    bad("subscribe since a time above 63 bits", "badVarint",
        altered("subscribe", encode_all(subscribe(1, 2**63, CID)))),
    bad("subscribe to more channels than there can be", "badValue:count", altered("subscribe", b"\x00\x00\x05\x03a:b")),
    bad("subscribe cut in a cid", "truncated", altered("subscribe", SUBSCRIBE[:-1])),
    bad("subscribe with more behind it", "trailingBytes", altered("subscribe", SUBSCRIBE + b"\x00")),
    bad("subscribe_reply without its channels", "truncated", altered("subscribe_reply", b"\x00\x01")),
    bad("subscribe_reply: complete 2", "badValue:flags", altered("subscribe_reply", b"\x00\x02\x00")),
    bad("subscribe_reply of more channels than there can be", "badValue:count",
        altered("subscribe_reply", b"\x00\x01\x02\x01a\x00")),
    bad("subscribe_reply with users behind it", "trailingBytes", altered("subscribe_reply", b"\x00\x01\x00\x00")),
    bad("subscribe_reply through a time above 63 bits", "badVarint",
        altered("subscribe_reply", encode_all(subscribed(2**63)))),
    bad("unsubscribe with no payload", "truncated", altered("unsubscribe", b"")),
    bad("unsubscribe from more channels than there can be", "badValue:count", altered("unsubscribe", b"\x05\x03a:b")),
    bad("unsubscribe_reply with a payload", "trailingBytes", altered("unsubscribe_reply", b"\x00")),
    bad("subscribe_user that says neither on nor off", "truncated", altered("subscribe_user", b"\x01a")),
    bad("subscribe_user with more behind it", "trailingBytes", altered("subscribe_user", b"\x01a\x01\x00")),
    bad("subscribe_user_reply of no time", "truncated", altered("subscribe_user_reply", b"")),
    bad("subscribe_user_reply with more behind it", "trailingBytes", altered("subscribe_user_reply", b"\x00\x00")),
    bad("announce_row without its channels", "truncated", altered("announce_row", b"\x01a")),
    bad("announce_row to more channels than there can be", "badValue:count", altered("announce_row", b"\x01a\x02\x01")),
    bad("announce_row_reply with a payload", "trailingBytes", altered("announce_row_reply", b"\x00")),
    bad("events with no payload", "truncated", altered("events", b"")),
    bad("events through a time above 63 bits", "badVarint", altered("events", encode_all(told(2**63)))),
    bad("events: lost 2", "badValue:flags", altered("events", b"\x00\x02\x00\x00")),
    bad("events without users", "truncated", altered("events", b"\x00\x00\x00")),
    bad("events with more behind them", "trailingBytes", altered("events", b"\x00\x00\x00\x00\x00")),
    bad("events of more channels than there can be", "badValue:count", altered("events", b"\x00\x00\x02\x01a\x00")),
    bad("events of more users than there can be", "badValue:count", altered("events", b"\x00\x00\x00\x02\x01a\x00")),
    bad("events of a channel whose cid is no UTF-8", "badValue:text",
        altered("events", b"\x00\x00\x01\x02\xc3\x28\x00\x00")),
    bad("more events than there can be", "badValue:count", altered("events", b"\x00\x00\x01\x01a\x02\x06\x00\x00")),
    bad_event("kind 0", "badValue:flags", b"\x00\x00"),
    bad_event("kind 11", "badValue:flags", b"\x0b\x00"),
    bad_event("a row with own 4", "badValue:flags", row_event(4, 1, T0, BOB_OWN, BOB_SHOWN)),
    bad_event("a row with shown 16", "badValue:flags", row_event(1, 16, T0, BOB_OWN, BOB_SHOWN)),
    bad_event("a row without own details", "badValue:flags", row_event(1, 1, T0, BOB_SHOWN, BOB_SHOWN)),
    bad_event("a row that shows others own details", "badValue:flags", row_event(1, 1, T0, BOB_OWN, BOB_OWN)),
    bad_event("a row, shown without what is shown", "truncated", row_event(1, 1, T0, BOB_OWN)),
    bad_event("a row, not shown, with what is not", "truncated", row_event(1, 0, T0, BOB_OWN, BOB_SHOWN)),
    bad_event("a row at a time above 63 bits", "badVarint", row_event(1, 0, 2**63, BOB_OWN)),
    bad_event("a message with flag 128", "badValue:flags", message_new(1, "m-1", "alice", T0, T0, 128)),
    bad_event("a message that shows a move which it did not make", "badValue:flags",
              message_new(1, "m-1", "alice", T0, T0, 24)),
    bad_event("a message above 32 bits", "badVarint", message_new(2**32, "m-1", "alice", T0, T0, 0)),
    bad_event("a deleted message that is no UTF-8", "badValue:text", b"\x03\x00\x01\x02\xc3\x28\x00"),
    bad_event("truncated above 32 bits", "badVarint", truncated_event(2**32, T0)),
    bad_event("an update whose option is none", "badValue:option",
              channel_updated(T0, channel(CID, T0, {14: "00"}, 2, 0, "", 0))),
    bad_event("members above 32 bits", "badVarint", member_added("dave", "", T0, 2**32)),
    bad_event("a member who has read above 32 bits", "badVarint", member_added("dave", "", T0, 1, 2**32)),
    bad_event("limits of nobody", "badValue:count", limits()),
    bad_event("limits of nothing hidden", "badValue:flags", limits((T0, T0, 0, 0))),
    bad_event("limits with hidden 16", "badValue:flags", limits((T0, T0, 16, 0))),
    bad_event("limits that end before they begin", "badValue:flags", limits((T0, T0 - 1, 1, 0))),
    bad_event("limits without an event behind them", "badValue:count", limits((T0, T0, 1, 0))),
    bad_event("members left above 32 bits", "badVarint", member_removed("dave", T0, 2**32)),
    bad_event("status 3", "badValue:status", status_event("alice", 1, 2, "m-2", 3, T0)),
    bad_event("a status from behind its end", "badValue:count", status_event("alice", 3, 2, "m-2", 1, T0)),
    bad_event("receipt status 4", "badValue:status", receipt_event(1, "m-1", "alice", 4, 0, 1, "", "", T0)),
    bad_event("a receipt's count above 32 bits", "badVarint",
              receipt_event(1, "m-1", "alice", 1, 2**32, 1, "", "", T0)),
    bad_event("a receipt's note that is no UTF-8", "badValue:text",
              b"\x0a\x01\x01m\x01a\x01\x00\x00\x00\x02\xc3\x28\x00\x00\x00"),
    bad_user_event("kind 0", "badValue:flags", b"\x00\x00"),
    bad_user_event("kind 3", "badValue:flags", b"\x03\x00"),
    bad_user_event("gone 2", "badValue:flags", membership_event(channel_entry(CID, 0, 1, T0), T0, 2)),
    bad_user_event("member 4", "badValue:flags", membership_event(channel_entry(CID, 0, 4, T0), T0, 0)),
    bad_user_event("without its time", "badValue:count", b"\x02"),
    bad_user_event("with more behind it", "trailingBytes", tokens_revoked_event(T0) + [byte("more", 0)]),
]

CUT_EVENTS = [
    # Each event, cut before its last byte, in a frame that ends there.
    bad(f"event: {name} cut at its end", "truncated", altered(
        "events", b"\x00\x00\x01\x03a:b\x01" + encode_all(event)[:-1]))
    for name, event in (
        ("a row", row_event(1, 0, T0, row("bob", own=(0, "", 0)))),
        ("a row as others see it", row_event(0, 1, T0, BOB_OWN, BOB_SHOWN)),
        ("a message", message_new(1, "m-1", "alice", T0, T0, 0)),
        ("a deleted message", message_deleted_event(1, "m-1", T0)),
        ("a truncation", truncated_event(1, T0)),
        ("an update", channel_updated(T0, channel(CID, T0, {}, 2, 0, "", 0))),
        ("a deletion", channel_deleted_event(T0)),
        ("a member", member_added("dave", "", T0, 1)),
        ("a member who left", member_removed("dave", T0, 1)),
        ("a status", status_event("alice", 1, 2, "m-2", 1, T0)),
        ("a receipt", receipt_event(1, "m-1", "alice", 1, 0, 1, "", "", T0)))
]
