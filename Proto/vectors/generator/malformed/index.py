"""Malformed frames of the index of users' channels."""

from ..fields.channels import channel_entry, list_channels_of
from ..fields.notation import encode, encode_all, varint
from ..fields.values import CID, T0
from ..framing import altered, bad
from .payloads import CHANNELS, CHANNEL_ENTRY, REBUILD, one_status

BAD_INDEX = [
    # The index.
    bad("list_channels without its cursor", "truncated", altered("list_channels", CHANNELS[:-1])),
    bad("list_channels with more behind it", "trailingBytes", altered("list_channels", CHANNELS + b"\x00")),
    bad("list_channels from a place above 32 bits", "badVarint",
        altered("list_channels", CHANNELS[:-1] + encode("opt", 2**32))),
    bad("list_channels_reply of more entries than there can be", "badValue:count",
        altered("list_channels_reply", b"\x30" + CHANNEL_ENTRY)),
    bad("list_channels_reply of an entry less than announced", "truncated",
        altered("list_channels_reply", b"\x02" + CHANNEL_ENTRY + b"\x00")),
    bad("list_channels_reply without its cursor", "truncated",
        altered("list_channels_reply", b"\x01" + CHANNEL_ENTRY)),
    bad("list_channels of deleted ones without its time", "truncated",
        altered("list_channels", encode_all(list_channels_of("alice", 2, 100, None)))),
    bad("list_channels of members, with a time", "trailingBytes",
        altered("list_channels", encode_all(list_channels_of("alice", 1, 100, None, T0)))),
    bad("list_channels_reply: member 4", "badValue:flags",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 0, 4, T0)) + b"\x00")),
    bad("list_channels_reply: deleted, without its time", "truncated",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 0, 2, 0)))),
    bad("list_channels_reply: a row above 32 bits", "badVarint",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 2**32, 1, T0)) + b"\x00")),
    bad("list_channels_reply: joined above 63 bits", "badVarint",
        altered("list_channels_reply", b"\x01" + encode_all(channel_entry(CID, 0, 1, 2**63)) + b"\x00")),
    bad("list_channels_reply: a cid that is no UTF-8", "badValue:text",
        altered("list_channels_reply", b"\x01\x02\xc3\x28\x01\x01\x00\x00")),
    bad("unread_counts of more channels than there can be", "badValue:count",
        altered("unread_counts", b"\x09\x03a:b\x01u\x00")),
    bad("unread_counts cut in a row", "truncated", altered("unread_counts", b"\x01\x03a:b\x01u")),
    bad("unread_counts with more behind it", "trailingBytes", altered("unread_counts", b"\x01\x03a:b\x01u\x00\x00")),
    bad("unread_counts_reply of more than there can be", "badValue:count", altered("unread_counts_reply", b"\x02\x1f")),
    bad("unread_counts_reply without the counts it announces", "truncated",
        altered("unread_counts_reply", b"\x01\x00\x03")),
    bad("unread_counts_reply with counts behind a refusal", "trailingBytes",
        altered("unread_counts_reply", b"\x01\x1f\x03\x01")),
    bad("unread_counts_reply with a code that there is not", "badValue:code",
        altered("unread_counts_reply", b"\x01\x63")),
    bad("unread_counts_reply of messages above 32 bits", "badVarint",
        altered("unread_counts_reply", b"\x01\x00" + varint(2**32) + b"\x00\x00\x00")),
    bad("rebuild_index without its epoch", "truncated", altered("rebuild_index", b"\x01")),
    bad("rebuild_index with more behind it", "trailingBytes", altered("rebuild_index", b"\x01\x01\x00")),
    bad("rebuild_index_reply: phase 3", "badValue:phase", altered("rebuild_index_reply", b"\x03" + REBUILD[1:])),
    bad("rebuild_index_reply without its entries", "truncated", altered("rebuild_index_reply", REBUILD[:-1])),
    bad("rebuild_index_reply with more behind it", "trailingBytes", altered("rebuild_index_reply", REBUILD + b"\x00")),
    bad("more readers than members", "badValue:count",
        altered("statuses_reply", one_status(read_count=4, unread_count=0))),
    bad("unread is not the rest", "badValue:count", altered("statuses_reply", one_status(unread_count=1))),
    bad("status flags 8", "badValue:flags", altered("statuses_reply", one_status(flags=8))),
    bad("status flags 4 without the count", "truncated", altered("statuses_reply", one_status(flags=4))),
]
