"""Holds the other end of a container's standard input or terminal, so that both outlive the kubelet.

Run as a script with nothing but the standard library, one process beside each container that has
`stdin` or `tty`:

    holder.py <listening socket> <go> <log> <held> <tty 0|1> <once 0|1> <socket path>

`go` is a pipe: a byte on it says that the container was really started, its end that it was not.
`held` is the master of a terminal, or the writing end of a pipe.  Clients (console.py) send frames:
a letter, a length, bytes.  The terminal's output goes to the log and to every client.  A client
that does not read holds up the terminal for a while; then the client is dropped, not the output.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import termios
import time

CHUNK = 65536
FRAME = struct.Struct(">cI")
MAX_FRAME_BYTES = 1 << 20
MAX_BUFFERED_BYTES = 256 * 1024
"""With so much output that a client has not read, the terminal is not read; with so much waiting
input, clients are not read."""
CLIENT_TIMEOUT = 30.0
"""Seconds after which a client that reads nothing is dropped."""
DRAIN_TIMEOUT = 5.0
"""Seconds for clients to read the rest after the container has ended."""
EOT = b"\x04"


class Client:
    """An attached client."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.waiting = bytearray()
        self.frames = bytearray()
        self.typed = False
        self.moved = time.monotonic()


class Holder:
    """The loop between a container and its clients."""

    def __init__(self, listener: socket.socket, log: int, held: int, tty: bool, once: bool) -> None:
        self.listener = listener
        self.log = log
        self.held = held
        self.tty = tty
        self.once = once
        self.clients: dict[int, Client] = {}
        self.input = bytearray()
        self.ended = False
        """The input has ended."""
        self.closed = False
        """The container no longer accepts input."""

    def run(self) -> None:
        """Serve until the container has ended and all clients have read everything."""
        while self.step():
            pass
        deadline = time.monotonic() + DRAIN_TIMEOUT
        while (
            any(client.waiting for client in self.clients.values()) and time.monotonic() < deadline
        ):
            poll = select.poll()
            for number, client in self.clients.items():
                if client.waiting:
                    poll.register(number, select.POLLOUT)
            for number, _ in poll.poll(200):
                self.write_output(self.clients[number])

    def step(self) -> bool:
        """One round; False if the container has ended."""
        now = time.monotonic()
        for client in list(self.clients.values()):
            if client.waiting and now - client.moved > CLIENT_TIMEOUT:
                self.drop(client)
        poll = select.poll()
        poll.register(self.listener, select.POLLIN)
        full = any(len(client.waiting) > MAX_BUFFERED_BYTES for client in self.clients.values())
        if not self.closed:
            events = select.POLLOUT if self.input else 0
            if self.tty and not full:
                events |= select.POLLIN
            if events or not full:
                poll.register(self.held, events)
        for number, client in self.clients.items():
            events = select.POLLOUT if client.waiting else 0
            if len(self.input) < MAX_BUFFERED_BYTES:
                events |= select.POLLIN
            poll.register(number, events)
        for number, event in poll.poll(1000):
            if number == self.listener.fileno():
                self.accept()
            elif number == self.held:
                if event & select.POLLOUT:
                    self.write_input()
                if self.tty and event & (select.POLLIN | select.POLLHUP) and not self.read_output():
                    return False
                if not self.tty and event & select.POLLERR:
                    return False
            elif (known := self.clients.get(number)) is not None:
                if event & select.POLLOUT:
                    self.write_output(known)
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self.read_frames(known)
        return not (self.closed and not self.tty)

    def accept(self) -> None:
        """Accept a client."""
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        self.clients[connection.fileno()] = Client(connection)

    def drop(self, client: Client) -> None:
        """Close the connection of a client."""
        self.clients.pop(client.connection.fileno(), None)
        client.connection.close()
        if self.once and client.typed:
            self.end()

    def end(self) -> None:
        """End the input: close the pipe, or type ^D at the terminal."""
        if self.ended:
            return
        self.ended = True
        if self.tty:
            self.input += EOT
        self.write_input()

    def read_frames(self, client: Client) -> None:
        """Read frames from a client."""
        try:
            data = client.connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.drop(client)
            return
        client.frames += data
        while len(client.frames) >= FRAME.size:
            letter, length = FRAME.unpack_from(client.frames)
            if length > MAX_FRAME_BYTES:
                self.drop(client)
                return
            if len(client.frames) < FRAME.size + length:
                break
            body = bytes(client.frames[FRAME.size : FRAME.size + length])
            del client.frames[: FRAME.size + length]
            self.handle_frame(client, letter, body)

    def handle_frame(self, client: Client, letter: bytes, body: bytes) -> None:
        """Handle one frame of a client."""
        if letter == b"i" and not self.ended:
            client.typed = True
            self.input += body
            self.write_input()
        elif letter == b"e":
            self.end()
        elif letter == b"r" and self.tty and len(body) == 4:
            rows, columns = struct.unpack(">HH", body)
            try:
                fcntl.ioctl(self.held, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            except OSError:
                pass

    def write_input(self) -> None:
        """Write waiting input to the container."""
        try:
            while self.input:
                del self.input[: os.write(self.held, self.input[:4096])]
        except BlockingIOError:
            return
        except OSError:
            self.input.clear()
        if self.ended and not self.input and not self.tty and not self.closed:
            self.closed = True
            os.close(self.held)

    def read_output(self) -> bool:
        """Read the terminal's output; False if no process has its other end open."""
        try:
            data = os.read(self.held, CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        left = memoryview(data)
        while left:
            left = left[os.write(self.log, left) :]
        for client in list(self.clients.values()):
            if not client.waiting:
                client.moved = time.monotonic()
            client.waiting += data
            self.write_output(client)
        return True

    def write_output(self, client: Client) -> None:
        """Write waiting output to a client."""
        try:
            while client.waiting:
                del client.waiting[: client.connection.send(client.waiting[:CHUNK])]
                client.moved = time.monotonic()
        except BlockingIOError:
            return
        except OSError:
            self.drop(client)


def main(arguments: list[str]) -> None:
    listening, go, log, held, tty, once = (int(text) for text in arguments[:6])
    path = arguments[6]
    try:
        if not os.read(go, 1):
            return  # the container was not started here: the socket is somebody else's, or nobody's
        os.close(go)
        os.set_blocking(held, False)
        listener = socket.socket(fileno=listening)
        Holder(listener, log, held, bool(tty), bool(once)).run()
        os.unlink(path)
    except FileNotFoundError:
        pass  # the pod's directory has gone already


if __name__ == "__main__":
    main(sys.argv[1:])
