"""One request over python3-h2 whose body and answer are sent concurrently, for the other clients."""
import select, socket, ssl
import h2.config, h2.connection, h2.events


def connect(port, certificate):
    """A socket to a gateway on this machine: over TLS if a certificate is given, else in cleartext."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not certificate:
        return plain
    context = ssl.create_default_context(cafile=certificate)
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain, server_hostname="localhost")


def exchange(connection, path, token, kind, pieces):
    """Posts the pieces as one body of this content type, as the windows allow, and yields the answer's bytes
    as they arrive. Closes the connection."""
    http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    http2.initiate_connection()
    http2.send_headers(
        1,
        [
            (":method", "POST"),
            (":path", path),
            (":scheme", "https"),
            (":authority", "localhost"),
            ("authorization", "Bearer " + token),
            ("content-type", kind),
        ],
    )
    pieces, piece, status = iter(pieces), b"", None
    with connection:
        while True:
            room = min(http2.local_flow_control_window(1), http2.max_outbound_frame_size) if piece is not None else 0
            if room > 0:
                piece = piece or next(pieces, None)
                if piece is None:
                    http2.end_stream(1)
                else:
                    http2.send_data(1, piece[:room])
                    piece = piece[room:]
            connection.sendall(http2.data_to_send())
            if room > 0 and not is_readable(connection):
                continue
            received = connection.recv(1 << 16)
            if not received:
                raise ConnectionError("the answer ended early")
            for event in http2.receive_data(received):
                if isinstance(event, h2.events.ResponseReceived):
                    status = dict(event.headers)[":status"]
                elif isinstance(event, h2.events.DataReceived):
                    http2.acknowledge_received_data(event.flow_controlled_length, 1)
                    if status != "200":
                        raise ConnectionError(f"{path} answered {status}: {event.data.decode()}")
                    yield event.data
                elif isinstance(event, h2.events.StreamEnded):
                    return
                elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                    raise ConnectionError(f"{path} was ended: {event}")


def is_readable(connection):
    return bool(getattr(connection, "pending", lambda: 0)() or select.select([connection], [], [], 0)[0])
