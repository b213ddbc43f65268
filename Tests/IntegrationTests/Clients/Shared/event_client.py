"""HTTP/2 over python3-h2 and asyncio for the other clients: requests, and event streams that may be slow or
cut."""
import asyncio, json, ssl
import h2.config, h2.connection, h2.events, h2.exceptions, h2.settings


# TLS contexts by port; gateways on other ports use cleartext.
contexts = {}


def trust(port, certificate):
    """Marks a port as a gateway with TLS and this certificate."""
    contexts[port] = ssl.create_default_context(cafile=certificate)
    contexts[port].set_alpn_protocols(["h2"])


class Lost(Exception):
    """The connection ended before the answer, or was refused."""


class Connection(asyncio.Protocol):
    """One connection. Requests are awaited; a stream's data goes to its receiver: `began(status, headers)`,
    `data(bytes)` and `ended()`."""

    def __init__(self, window=65_535):
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.local_settings = h2.settings.Settings(
            client=True,
            initial_values={
                h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window,
                h2.settings.SettingCodes.ENABLE_PUSH: 0,
            },
        )
        self.transport = None
        self.is_open = False
        self.answers, self.receivers, self.bodies = {}, {}, {}
        self.takes_data = True
        self.untaken = []

    @classmethod
    async def to(cls, port, window=65_535):
        loop, context = asyncio.get_running_loop(), contexts.get(port)
        tls = {"ssl": context, "server_hostname": "localhost"} if context else {}
        try:
            _, connection = await asyncio.wait_for(
                loop.create_connection(lambda: cls(window), "127.0.0.1", port, **tls), 30
            )
        except (OSError, asyncio.TimeoutError) as error:
            raise Lost(str(error)) from None
        return connection

    # Requests.

    async def request(self, method, path, token, body=None, timeout=60):
        """Returns the answer: (status, headers, JSON or None)."""
        if not self.is_open:
            raise Lost("closed")
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        number = self._send(method, path, token, [], data)
        answer = asyncio.get_running_loop().create_future()
        self.answers[number] = [answer, 0, {}, []]
        self._flush()
        try:
            return await asyncio.wait_for(answer, timeout)
        except asyncio.TimeoutError:
            raise Lost("no answer") from None

    def open(self, path, token, headers, receiver):
        """Opens a stream."""
        if not self.is_open:
            raise Lost("closed")
        number = self._send("GET", path, token, headers, None)
        self.receivers[number] = receiver
        self._flush()
        return number

    def take(self, takes_data):
        """Sets whether windows of streams are reopened as data arrives; otherwise the server stops when they
        are full."""
        self.takes_data = takes_data
        if not takes_data or not self.is_open:
            return
        untaken, self.untaken = self.untaken, []
        for number, length in untaken:
            self._acknowledge(number, length)
        self._flush()

    def pause(self):
        """Stops reading from the socket."""
        if self.is_open:
            self.transport.pause_reading()

    def resume(self):
        if self.is_open:
            self.transport.resume_reading()

    def cut(self):
        """Ends the connection the way a lost network does."""
        if self.transport is not None:
            self.transport.abort()

    def _send(self, method, path, token, more, body):
        try:
            number = self.h2.get_next_available_stream_id()
            headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost")]
            headers += [("authorization", "Bearer " + token)] + more
            if body is not None:
                headers.append(("content-type", "application/json"))
            self.h2.send_headers(number, headers, end_stream=body is None)
        except h2.exceptions.H2Error as error:
            raise Lost(str(error)) from None
        if body is not None:
            self.bodies[number] = body
            self._send_body(number)
        return number

    def _send_body(self, number):
        while number in self.bodies:
            body = self.bodies[number]
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size, len(body))
            if room <= 0 and body:
                return
            self.h2.send_data(number, body[:room], end_stream=room == len(body))
            if room == len(body):
                del self.bodies[number]
            else:
                self.bodies[number] = body[room:]

    # Incoming data.

    def connection_made(self, transport):
        self.transport, self.is_open = transport, True
        self.h2.initiate_connection()
        self._flush()

    def connection_lost(self, error):
        self.is_open = False
        answers, self.answers = self.answers, {}
        receivers, self.receivers = self.receivers, {}
        for answer in answers.values():
            if not answer[0].done():
                answer[0].set_exception(Lost(str(error)))
        for receiver in receivers.values():
            receiver.ended()

    def data_received(self, data):
        try:
            for event in self.h2.receive_data(data):
                self._handle(event)
        except h2.exceptions.H2Error:
            self.cut()
        self._flush()

    def _handle(self, event):
        number = getattr(event, "stream_id", 0)
        if isinstance(event, h2.events.DataReceived):
            if number in self.answers:
                self.answers[number][3].append(event.data)
                self._acknowledge(number, event.flow_controlled_length)
                return
            if not self.takes_data:
                self.untaken.append((number, event.flow_controlled_length))
            else:
                self._acknowledge(number, event.flow_controlled_length)
            if number in self.receivers:
                self.receivers[number].data(event.data)
        elif isinstance(event, h2.events.ResponseReceived):
            headers = dict(event.headers)
            if number in self.answers:
                self.answers[number][1:3] = [int(headers[":status"]), headers]
            elif number in self.receivers:
                self.receivers[number].began(int(headers[":status"]), headers)
        elif isinstance(event, h2.events.StreamEnded):
            if number in self.answers:
                answer, status, headers, parts = self.answers.pop(number)
                body = b"".join(parts)
                is_json = headers.get("content-type", "").split(";")[0].endswith("json")
                if not answer.done():
                    answer.set_result((status, headers, json.loads(body) if body and is_json else None))
            elif number in self.receivers:
                self.receivers.pop(number).ended()
        elif isinstance(event, h2.events.StreamReset):
            if number in self.answers:
                answer = self.answers.pop(number)[0]
                if not answer.done():
                    answer.set_exception(Lost("reset"))
            elif number in self.receivers:
                self.receivers.pop(number).ended()
        elif isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
            for waiting in list(self.bodies):
                self._send_body(waiting)

    def _acknowledge(self, number, length):
        try:
            self.h2.acknowledge_received_data(length, number)
        except (h2.exceptions.H2Error, KeyError):
            pass  # The stream has ended.

    def _flush(self):
        data = self.h2.data_to_send()
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)


class Blocks:
    """The complete blocks of an event stream (WHATWG HTML, "Server-sent events")."""

    def __init__(self):
        self.bytes = b""

    def feed(self, data):
        """Returns the blocks completed by `data`: [(event or None, id or None)]."""
        *whole, self.bytes = (self.bytes + data).split(b"\n\n")
        return [self._block(block) for block in whole]

    @staticmethod
    def _block(block):
        event, id = None, None
        for line in block.split(b"\n"):
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
            elif line.startswith(b"id: "):
                id = line[4:].decode()
        return event, id


class Caller:
    """Sends each request to any of the gateways until it is answered."""

    def __init__(self, ports, generator, tally):
        self.ports, self.generator, self.tally = ports, generator, tally
        self.connections = {}

    async def ask(self, method, path, token, body=None, tries=400):
        """Returns the first answer other than 503."""
        last = None
        for _ in range(tries):
            port = self.generator.choice(self.ports)
            try:
                connection = self.connections.get(port)
                if connection is None or not connection.is_open:
                    connection = self.connections[port] = await Connection.to(port)
                status, _, answer = await connection.request(method, path, token, body)
                if status != 503:
                    return status, answer
                last = answer
                self.tally["answers 503"] += 1
            except Lost as lost:
                self.connections.pop(port, None)
                last = lost
                self.tally["answers lost"] += 1
            await asyncio.sleep(0.1)
        raise SystemExit(f"{method} {path} was not answered in {tries} tries: {last}")


async def metrics(port):
    """The metrics of an operations listener, summed by name; empty if the connection is refused."""
    found = {}
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        text = (await asyncio.wait_for(reader.read(), 10)).decode()
        writer.close()
    except (OSError, asyncio.TimeoutError):
        return found
    for line in text.split("\r\n\r\n", 1)[-1].splitlines():
        if line.startswith("tidemark_"):
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            found[name] = found.get(name, 0) + float(value)
    return found
