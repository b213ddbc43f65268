"""Registers many batches of messages concurrently on one connection, as fast as HTTP/2's windows allow.

usage: parallel_batches.py GATEWAY_PORT SERVER_TOKEN BATCHES MESSAGES CHANNEL...

Prints the result as JSON: {"answers": {"<status> <code>": n}, "entries": {"ok" or code: n},
"resets": {error code: n}, "goaways": n, "bytes": of all bodies, "unanswered": n}.

A batch without an answer after 120 s counts as unanswered.
"""
import json, select, sys, time
import h2.events
from h2_connection import Connection

port, token, batches, messages, channels = (
    int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
said = {"answers": {}, "entries": {}, "resets": {}, "goaways": 0, "bytes": 0, "unanswered": 0}
connection = Connection(port, token)
h2_connection = connection.h2
# The unsent rest of each body, and the received part of each answer.
bodies, answers = {}, {}


def count(name, key):
    said[name][key] = said[name].get(key, 0) + 1


def take(data):
    for event in h2_connection.receive_data(data):
        if isinstance(event, h2.events.ResponseReceived):
            answers[event.stream_id][0] = dict(event.headers)[":status"]
        elif isinstance(event, h2.events.DataReceived):
            answers[event.stream_id][1] += event.data
            h2_connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            status, body = answers.pop(event.stream_id)
            bodies.pop(event.stream_id, None)
            document = json.loads(body or b"{}")
            count("answers", (status + " " + document.get("code", "")).strip())
            for entry in document.get("results", []):
                count("entries", entry.get("code", "ok"))
        elif isinstance(event, h2.events.StreamReset):
            answers.pop(event.stream_id, None)
            bodies.pop(event.stream_id, None)
            count("resets", int(event.error_code))
        elif isinstance(event, h2.events.ConnectionTerminated):
            said["goaways"] += 1


def send():
    """Sends a frame of each body in turn, as far as the windows allow."""
    for stream in list(bodies):
        body = bodies[stream]
        room = min(h2_connection.local_flow_control_window(stream), h2_connection.max_outbound_frame_size)
        if room > 0:
            h2_connection.send_data(stream, body[:room], end_stream=room >= len(body))
            bodies[stream] = body[room:]
            if not bodies[stream]:
                del bodies[stream]
    connection.flush()


while h2_connection.remote_settings.max_concurrent_streams > 1 << 20:
    take(connection.socket.recv(1 << 16))
    connection.flush()
for batch in range(batches):
    entries = [
        {"cid": channels[(batch + n) % len(channels)], "id": f"batch-{batch}-message-{n}", "user_id": "alice",
         "created_at": "2026-11-23T05:00:00.000Z"}
        for n in range(messages)]
    stream = h2_connection.get_next_available_stream_id()
    h2_connection.send_headers(stream, [
        (":method", "POST"), (":path", "/v1/messages"), (":scheme", "http"), (":authority", "localhost"),
        ("authorization", "Bearer " + token), ("content-type", "application/json")])
    bodies[stream], answers[stream] = json.dumps({"messages": entries}).encode(), ["", b""]
    said["bytes"] += len(bodies[stream])
connection.socket.setblocking(True)
deadline = time.time() + 120
while answers and time.time() < deadline and not said["goaways"]:
    send()
    if select.select([connection.socket], [], [], 0 if any(
            h2_connection.local_flow_control_window(stream) > 0 for stream in bodies) else 1)[0]:
        data = connection.socket.recv(1 << 16)
        if not data:
            break
        take(data)
        connection.flush()
said["unanswered"] = len(answers)
print(json.dumps(said))
