"""A TCP proxy that cuts its connections at random, in the middle of a transfer.

usage: cutting_proxy.py LISTEN_PORT TARGET_PORT SEED MEAN_BYTES
"""
import asyncio, random, socket, struct, sys

listen, target, seed, mean = (int(argument) for argument in sys.argv[1:5])
generator = random.Random(seed)


def cut(writer):
    # A reset, so that data in flight is lost rather than delivered late.
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def pump(reader, writer, state, other):
    try:
        while data := await reader.read(4096):
            state["left"] -= len(data)
            if state["left"] <= 0:
                writer.write(data[: generator.randrange(len(data) + 1)])
                await writer.drain()
                break
            writer.write(data)
            await writer.drain()
    except (ConnectionError, asyncio.CancelledError):
        pass
    cut(writer)
    cut(other)


async def serve(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
    except ConnectionError:
        cut(writer)
        return
    state = {"left": generator.randrange(200, 2 * mean)}
    await asyncio.gather(pump(reader, far_writer, state, writer), pump(far_reader, writer, state, far_writer))


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", listen)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
