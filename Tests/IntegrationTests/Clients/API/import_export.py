"""Copies a store to an empty one by export and import, and compares every answer of the two.

usage: import_export.py FROM_URL TO_URL JWT_SECRET_FILE [--ca FILE]

FROM_URL has a history already, such as that of random_history.py; TO_URL is the gateway of an empty store. Prints
"ok N answers" and exits 0, or prints the differences and exits 1. Afterwards it imports the same lines again, into the
second store, whose answers and export have to stay the same; then wrong lines of every kind, which have to be refused.
"""
import argparse, collections, itertools, json, ssl, sys, urllib.parse
import httpx
from access_token import token

LISTS = ("readers", "delivered", "unread", "acknowledged", "unacknowledged")
# Sorted by time, members without an exact time may differ in their order.
SHOWN_DIFFERENCES = 20


class Gateway:
    def __init__(self, url, secret, certificate):
        verify = ssl.create_default_context(cafile=certificate) if certificate else True
        self.http = httpx.Client(base_url=url, http1=False, http2=True, verify=verify, timeout=60)
        self.secret, self.tokens = secret, {}

    def headers(self, user=None):
        if user not in self.tokens:
            self.tokens[user] = token(self.secret, user)
        return {"authorization": "Bearer " + self.tokens[user]}

    def ask(self, method, path, user=None, body=None):
        """Returns an answer without what differs from store to store: ids of requests, and cursors."""
        answer = self.http.request(method, path, json=body, headers=self.headers(user))
        document = answer.json()
        if isinstance(document, dict):
            document.pop("request_id", None)
        return answer.status_code, document

    def pages(self, path, user=None):
        """Returns all pages of a list, as one answer."""
        separator, cursor, pages = "&" if "?" in path else "?", "", []
        while True:
            answer = self.ask("GET", path + (f"{separator}cursor={cursor}" if cursor else ""), user)
            cursor = answer[1].pop("next", "")
            # A list that ends at a truncation, or before deleted messages, may have a last page without entries.
            if not pages or any(value for value in answer[1].values() if isinstance(value, list)):
                pages.append(answer)
            if not cursor:
                return pages

    def export(self, **query):
        with self.http.stream("GET", "/v1/export", params=query, headers=self.headers()) as answer:
            assert answer.status_code == 200, answer.read()
            return [json.loads(line) for line in answer.iter_lines()]

    def import_lines(self, lines, **query):
        """Returns the answers to an import; a line may be an object, or text."""
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        body = ((text + "\n").encode() for text in texts)
        headers = self.headers() | {"content-type": "application/x-ndjson"}
        answer = self.http.post("/v1/import", content=body, params=query, headers=headers)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


def check(is_right, *details):
    if not is_right:
        raise AssertionError(details)


def answers(gateway, lines):
    """Returns the answers to every query about what the lines name, by their questions."""
    found = {}
    channels = [line["channel"]["cid"] for line in lines if "channel" in line]
    messages, users = collections.defaultdict(list), set()
    parents = collections.defaultdict(set)
    for line in lines:
        if "message" in line:
            message = line["message"]
            messages[message["cid"]].append(message["id"])
            if "parent_id" in message:
                parents[message["cid"]].add(message["parent_id"])
        elif "member" in line:
            users.add(line["member"]["user_id"])
        elif "user" in line:
            users.add(line["user"]["id"])
    users = sorted(users)
    quote = lambda text: urllib.parse.quote(text, safe="")
    for line in lines:
        if "channel_type" in line:
            found["type", line["channel_type"]["type"]] = gateway.ask("GET", f"/v1/channel-types/{line['channel_type']['type']}")
    for user in users:
        for path in ("", "/unread", "/channels", "/threads", "/threads?unread=true", "/receipts?state=pending",
                     "/receipts?state=acknowledged"):
            pages = gateway.pages(f"/v1/users/{quote(user)}{path}") if path else gateway.ask("GET", f"/v1/users/{quote(user)}")
            found["user", user, path] = in_order(pages) if path else pages
    for cid in channels:
        at = f"/v1/channels/{quote(cid)}"
        found[cid, "channel"] = gateway.ask("GET", at)
        found[cid, "roster"] = gateway.pages(at + "/members?limit=2")
        found[cid, "messages"] = gateway.pages(at + "/messages?limit=3")
        for viewer in [None] + users:
            named = f"&user_id={quote(viewer)}" if viewer else ""
            for as_user in ([None, viewer] if viewer else [None]):
                query = "" if as_user else named
                who = (cid, viewer, "as user" if as_user else "as server")
                found[who, "rows"] = gateway.pages(f"{at}/read-state?limit=2{query}", as_user)
                for parent in sorted(parents[cid]):
                    path = f"{at}/read-state?limit=3&thread_id={quote(parent)}{query}"
                    found[who, "thread", parent] = gateway.pages(path, as_user)
                for part in itertools.batched(messages[cid], 100) if hasattr(itertools, "batched") else chunks(messages[cid]):
                    body = {"message_ids": list(part)} | ({"user_id": viewer} if viewer and not as_user else {})
                    found[who, "statuses", part[0]] = gateway.ask("POST", at + "/receipts/query", as_user, body)
                for message in messages[cid]:
                    names = ",".join(quote(user) for user in users)
                    path = f"{at}/messages/{quote(message)}"
                    found[who, message, "members"] = gateway.ask("GET", f"{path}/members?user_ids={names}{query}", as_user)
                    if as_user:
                        continue
                    for kind in LISTS:
                        found[who, message, kind] = gateway.pages(f"{path}/{kind}?limit=2{query}", as_user)
                    found[who, message, "by time"] = gateway.ask("GET", f"{path}/readers?order=time{query}", as_user)
    return found


def chunks(names):
    return [tuple(names[start:start + 100]) for start in range(0, len(names), 100)]


def in_order(pages):
    """Lists over a user's channels are in the order in which the user joined them, which an import does not keep."""
    entries, rest = [], []
    for status, document in pages:
        rest.append((status, {key: value for key, value in document.items() if not isinstance(value, list)}))
        entries += [json.dumps(entry, sort_keys=True) for value in document.values() if isinstance(value, list) for entry in value]
    return rest[:1], sorted(entries)


def differences(first, second):
    return [f"{name}:\n  {first.get(name)}\n  {second.get(name)}" for name in first if first[name] != second.get(name)]


def compare(what, first, second):
    found = differences(first, second)
    for line in found[:SHOWN_DIFFERENCES]:
        print(what, line)
    check(not found, f"{what}: {len(found)} of {len(first)} answers differ")


def without_order(lines):
    return sorted(json.dumps(line, sort_keys=True) for line in lines)


def check_copy(source, target):
    """Copies the first store to the second, and returns its lines."""
    lines = source.export()
    check(lines and not any("error" in line for line in lines), lines[-1:])
    dry = target.import_lines(lines, dry_run="true")
    check(dry == [{"done": True, "lines": len(lines), "refused": 0}], dry[:3])
    check(target.export() == [], "a dry run has imported something")
    done = target.import_lines(lines)
    check(done[-1] == {"done": True, "lines": len(lines), "refused": 0}, done[:SHOWN_DIFFERENCES], [
        lines[answer["line"] - 1] for answer in done[:3] if "line" in answer])
    first, second = answers(source, lines), answers(target, lines)
    compare("after the import", first, second)
    copied = target.export()
    for one, other in zip(without_order(lines), without_order(copied)):
        check(one == other, "exported again", one, other)
    check(len(lines) == len(copied), "exported again", len(lines), len(copied))
    again = target.import_lines(lines)
    check(again[-1] == {"done": True, "lines": len(lines), "refused": 0}, again[:3])
    check(target.export() == copied, "the same lines again have changed something")
    compare("after the same lines again", second, answers(target, lines))
    return lines, len(first)


def check_person(source, lines):
    """The export of a person has their lines, and nobody else's."""
    user = next(line["member"]["user_id"] for line in lines if "member" in line)
    own = source.export(user_id=user)
    wanted = [line for line in lines if line.get("member", line.get("acknowledged", {})).get("user_id") == user
              or line.get("message", {}).get("user_id") == user]
    found = [line for line in own if "user" not in line]
    check(without_order(wanted) == without_order(found), "the lines of one person", len(wanted), len(found))
    check([line["user"]["id"] for line in own if "user" in line] == [user], "a person's settings")
    types = {line["channel"]["cid"].split(":")[0] for line in lines if "channel" in line}
    for name in types:
        part = source.export(channel_type=name)
        wanted = [line for line in lines if "channel" in line and line["channel"]["cid"].startswith(name + ":")]
        check(without_order(wanted) == without_order(line for line in part if "channel" in line), "one type")
    check(not [line for line in source.export(channel_type="other-type") if "channel" in line], "a type without channels")


def check_refusals(target):
    """Wrong lines of every kind are refused, each by its code, and the others are imported."""
    cid, at = "messaging:wrong-lines", "2026-01-01T00:00:00.000Z"
    line = lambda kind, **fields: {kind: {"cid": cid} | fields}
    member = lambda user, **fields: line("member", user_id=user, **fields)
    wrong = [
        ("{", "invalid_json"), ("[]", "invalid_field"), ("{}", "invalid_field"),
        ({"something": {}}, "unknown_field"), (line("channel") | line("message", id="x"), "invalid_field"),
        (line("message", id="m", messageId=1), "unknown_field"), (line("channel", options={"nothing": 1}), "unknown_field"),
        ({"channel_type": {"type": "a b", "options": {}}}, "invalid_channel_type"),
        ({"channel_type": {"type": "t", "options": {"history": "none"}}}, "invalid_option"),
        ({"user": {"id": ""}}, "invalid_user_id"), ({"channel": {"cid": "nothing"}}, "invalid_cid"),
        (line("channel", created_at="2999-01-01T00:00:00Z"), "time_in_future"),
        (line("message", id="a"), "channel_not_found"), (line("channel", created_at=at), None),
        (line("message", id="a", user_id="alice", seq=1, created_at=at, receipt=True), None),
        (line("message", id="a", user_id="bob", created_at=at), "message_conflict"),
        (line("message", id="a", user_id="alice", seq=2, receipt=True), "import_conflict"),
        (line("message", id="b", seq=3), "import_gap"), (line("message", id="b", seq=1), "import_conflict"),
        (line("message", id="b", created_at="2999-01-01T00:00:00Z"), "time_in_future"),
        (line("message", id="b", created_at="yesterday"), "invalid_field"),
        (line("message", id="b", parent_id="none"), "message_not_found"),
        (line("message", id="b", mentions="some"), "invalid_field"), (line("message", id=""), "invalid_message_id"),
        (line("message", id="b", user_id="bob", mentions=["alice"]), None), (line("message", id="r", parent_id="a"), None),
        (line("message", id="rr", parent_id="r"), "invalid_field"),
        (member("alice", last_read_message_id="none"), "message_not_found"), (member("alice", role="no role"), "invalid_field"),
        (member("alice", joined_seq=9), "import_conflict"), (member("alice", thread_id="a"), "member_not_found"),
        (member("alice", last_read_at="2999-01-01T00:00:00Z"), "time_in_future"),
        (member("alice", steps=[{"kind": "read", "seq": 2, "at": at}]), "import_conflict"),
        (member("alice", steps=[{"kind": "seen", "seq": 1, "at": at}]), "invalid_field"),
        (member("alice", last_read_message_id="a", joined_seq=0), None), (member("alice", joined_seq=1), "import_conflict"),
        (member("alice", left_at=at), "import_conflict"), (member("bob", joined_seq=1), None),
        (member("carol", joined_seq=0), "import_order"), (member("alice", thread_id="b"), "import_order"),
        (member("carol", joined_seq=2), None), (line("acknowledged", message_id="b", user_id="alice", at=at), "receipt_not_requested"),
        (line("acknowledged", message_id="a", user_id="alice", at=at), "own_message"),
        (line("acknowledged", message_id="a", user_id="carol", at=at), "not_expected"),
        (line("acknowledged", message_id="a", user_id="dave", at=at), "member_not_found"),
        (line("acknowledged", message_id="a", user_id="bob", at=at, note="x" * 1025), "invalid_field"),
        (line("acknowledged", message_id="none", user_id="bob", at=at), "message_not_found"),
        ("x" * 60_000, "line_too_long"),
    ]
    found = target.import_lines(text for text, _ in wrong)
    refused = {answer["line"]: answer["code"] for answer in found if "line" in answer}
    wanted = {number: code for number, (_, code) in enumerate(wrong, 1) if code}
    wrongly = {number: (refused.get(number), wanted.get(number), wrong[number - 1][0]) for number in refused.keys() | wanted.keys()
               if refused.get(number) != wanted.get(number)}
    check(not wrongly, "refused otherwise", wrongly)
    check(all(answer["detail"] for answer in found if "line" in answer), "a refusal has a detail")
    check(found[-1] == {"done": True, "lines": len(wrong), "refused": len(wanted)}, found[-1])
    status, document = target.ask("GET", f"/v1/channels/{cid}/read-state?user_id=alice")
    row = document["read"][0]
    check(row["user"]["id"] == "alice" and row["unread_mentions"] == 1 and row["unread_messages"] == 1, row)
    return len(wanted)


def check_callers(target):
    """Only servers import and export; the body is NDJSON."""
    for method, path in (("POST", "/v1/import"), ("GET", "/v1/export")):
        answer = target.http.request(method, path, headers=target.headers("alice"))
        check(answer.status_code == 403, method, answer.text)
        check(target.http.request(method, path).status_code == 401, "without a token")
    answer = target.http.post("/v1/import", json={}, headers=target.headers())
    check(answer.status_code == 415, answer.text)
    check(target.import_lines([]) == [{"done": True, "lines": 0, "refused": 0}], "no lines")
    answer = target.http.get("/v1/export?channel_type=a%20b", headers=target.headers())
    check(answer.status_code == 400, answer.text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("secret_file")
    parser.add_argument("--ca")
    arguments = parser.parse_args()
    secret = open(arguments.secret_file, "rb").readline().rstrip(b"\r\n")
    source, target = (Gateway(url, secret, arguments.ca if url.startswith("https") else None)
                      for url in (arguments.source, arguments.target))
    check_callers(target)
    lines, compared = check_copy(source, target)
    check_person(source, lines)
    refused = check_refusals(target)
    print(f"ok {len(lines)} lines, {compared} answers, {refused} refusals")


try:
    main()
except AssertionError as error:
    print(*error.args)
    sys.exit(1)
