"""The fields of what import and export move."""

from .notation import byte, many, number, opt, string, time
from .values import T0


def moved_message(id, user="", parent="", sequence=0, registered=0, created=0, expires=0, deleted=0, flags=0,
                  *mentions):
    return [string("message", id), string("user", user), string("parent", parent), number("sequence", sequence),
            time("registered_at", registered), time("created_at", created), time("expires_at", expires),
            time("deleted_at", deleted), byte("flags", flags),
            many("mentions", [[string("user", u)] for u in mentions])]


def moved_member(user, role="", thread="", flags=0, joined=None, joined_at=0, left=0, read=("", 0), delivered=("", 0),
                 unread_from="", epoch=0, moved=(0, 0), acknowledged=0, bounds=(None, None), *moves):
    return [string("user", user), string("role", role), string("parent", thread), byte("flags", flags),
            opt("joined", joined), time("joined_at", joined_at), time("left_at", left),
            string("last_read_message", read[0]), time("last_read_at", read[1]),
            string("last_delivered_message", delivered[0]), time("last_delivered_at", delivered[1]),
            string("first_unread_message", unread_from), number("unread_epoch", epoch), number("read_moves", moved[0]),
            number("delivered_moves", moved[1]), number("acknowledged_through", acknowledged),
            opt("counted_after", bounds[0]), opt("unread_after", bounds[1]),
            many("moves", [[byte("move", move), number("sequence", sequence), time("at", at)]
                           for move, sequence, at in moves])]


def moved_acknowledgement(message_id, user, when, note="", flags=0):
    return [string("message", message_id), string("user", user), time("at", when), string("note", note),
            byte("flags", flags)]


WHOLE_MESSAGE = moved_message("m" * 255, "u" * 255, "p" * 255, 2**32 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1, 2**63 - 1,
                              127, "carol", "Zo\u00eb")
WHOLE_MEMBER = moved_member(
    "u" * 255, "r" * 64, "t" * 255, 127, 2**32 - 2, 2**63 - 1, 2**63 - 1, ("m" * 255, 2**63 - 1),
    ("d" * 255, 2**63 - 1), "f" * 255, 2**32 - 1, (2**32 - 1, 2**32 - 1), 2**32 - 1, (2**32 - 2, 2**32 - 2),
    (0, 1, T0), (3, 2**32 - 1, 2**63 - 1))
