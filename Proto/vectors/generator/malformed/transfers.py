"""Malformed frames of push jobs, and of import and export."""

from ..fields.notation import encode_all, varint
from ..fields.push import put_push_job
from ..fields.transfers import moved_acknowledgement, moved_member, moved_message
from ..fields.values import T0
from ..framing import altered, bad

BAD_JOBS = [
    bad("put_push_job without users", "truncated", altered("put_push_job", b"\x01a\x01\x01m\x01\x01\x00")),
    bad("put_push_job of more users than there can be", "badValue:count",
        altered("put_push_job", b"\x01a\x01\x01m\x01\x01\x00\x02\x01u\x00")),
    bad("put_push_job cut in a user's devices", "truncated",
        altered("put_push_job", b"\x01a\x01\x01m\x01\x01\x00\x01\x01u\x02d")),
    bad("put_push_job with more behind it", "trailingBytes",
        altered("put_push_job", encode_all(put_push_job(1, "m", 1, 1, "{}")) + b"\x00")),
    bad("claim_push_jobs without a size", "truncated", altered("claim_push_jobs", b"\x01\x01")),
    bad("claim_push_jobs with more behind it", "trailingBytes", altered("claim_push_jobs", b"\x01\x01\x01\x00")),
    bad("claim_push_jobs_reply of more jobs than there can be", "badValue:count",
        altered("claim_push_jobs_reply", b"\x02\x01\x01\x01\x01\x00\x00\x00")),
    bad("claim_push_jobs_reply: more 2", "badValue:flags", altered("claim_push_jobs_reply", b"\x00\x02")),
    bad("update_push_jobs: done 2", "badValue:flags", altered("update_push_jobs", b"\x01\x02\x00\x00")),
    bad("update_push_jobs of more jobs than there can be", "badValue:count",
        altered("update_push_jobs", b"\x01\x01\x00\x02\x01\x01")),
    bad("update_push_jobs_reply with more behind it", "trailingBytes", altered("update_push_jobs_reply", b"\x00\x00")),
]

BAD_TRANSFERS = [
    bad("import_channel without options", "truncated", altered("import_channel", b"\x01a\x01\x00")),
    bad("import_messages of more messages than there can be", "badValue:count",
        altered("import_messages", b"\x01a\x01\x02" + encode_all(moved_message("m")))),
    bad("import_messages cut in a message", "truncated",
        altered("import_messages", b"\x01a\x01\x01" + encode_all(moved_message("mmmm"))[:-1])),
    bad("import_messages with unknown flags", "badValue:flags",
        altered("import_messages", b"\x01a\x01\x01" + encode_all(moved_message("m", flags=128)))),
    bad("import_messages with more behind them", "trailingBytes",
        altered("import_messages", b"\x01a\x01\x01" + encode_all(moved_message("m")) + b"\x00")),
    bad("import_members of more members than there can be", "badValue:count",
        altered("import_members", b"\x01a\x01\x02" + encode_all(moved_member("u")))),
    bad("import_members with unknown flags", "badValue:flags",
        altered("import_members", b"\x01a\x01\x01" + encode_all(moved_member("u", flags=128)))),
    bad("import_members with an unknown move", "badValue:flags",
        altered("import_members", b"\x01a\x01\x01" + encode_all(
            moved_member("u", "", "", 0, None, 0, 0, ("", 0), ("", 0), "", 0, (0, 0), 0, (None, None), (4, 1, T0))))),
    bad("import_members with a move to nothing", "badValue:flags", altered(
        "import_members", b"\x01a\x01\x01" + encode_all(moved_member(
            "u", "", "", 0, None, 0, 0, ("", 0), ("", 0), "", 0, (0, 0), 0, (None, None), (1, 0, T0))))),
    bad("import_members with a name that is no UTF-8", "badValue:text",
        altered("import_members", b"\x01a\x01\x01\x02\xc3\x28" + encode_all(moved_member("u"))[2:])),
    bad("import_acknowledgements with unknown flags", "badValue:flags", altered(
        "import_acknowledgements", b"\x01a\x01\x01" + encode_all(moved_acknowledgement("m", "u", T0, "", 2)))),
    bad("import_members_reply with a code above 16 bits", "badValue:code",
        altered("import_members_reply", b"\x01" + varint(2**16))),
    bad("export_channel without a part", "truncated", altered("export_channel", b"\x01a\x00\x00")),
    bad("export_channel_reply without acknowledgements", "truncated",
        altered("export_channel_reply", b"\x00\x01\x00\x00\x00")),
    bad("list_stored_channels without a limit", "truncated", altered("list_stored_channels", b"\x00")),
    bad("list_users_reply with more behind it", "trailingBytes", altered("list_users_reply", b"\x00\x00\x00")),
]
