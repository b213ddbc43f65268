"""One cleartext HTTP/2 connection over python3-h2, for the other clients."""
import socket
import h2.config, h2.connection, h2.events


class Connection:
    def __init__(self, port, token):
        self.port, self.token = port, token
        self.waiting = {}
        self.open()

    def open(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def send(self, method, path, tag, body=None):
        """Queues a request; `flush` sends it. The body must fit the windows."""
        stream = self.h2.get_next_available_stream_id()
        headers = [
            (":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost"),
            ("authorization", "Bearer " + self.token)]
        if body is not None:
            headers.append(("content-type", "application/json"))
        self.h2.send_headers(stream, headers, end_stream=body is None)
        if body is not None:
            piece = self.h2.max_outbound_frame_size
            for start in range(0, max(len(body), 1), piece):
                self.h2.send_data(stream, body[start:start + piece], end_stream=start + piece >= len(body))
        self.waiting[stream] = [tag, {}, b""]

    def receive(self):
        """Returns complete answers: [(tag, headers, body)]; reopens a lost connection."""
        data = self.socket.recv(1 << 16)
        if not data:
            self.waiting.clear()
            self.open()
            return []
        done = []
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                self.waiting[event.stream_id][1] = dict(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self.waiting[event.stream_id][2] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                done.append(tuple(self.waiting.pop(event.stream_id)))
            elif isinstance(event, h2.events.StreamReset):
                self.waiting.pop(event.stream_id, None)
        self.flush()
        return done
