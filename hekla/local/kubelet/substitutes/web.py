"""Stands in for a web server's image: a page at every path, on the given port or 80, until it is
told to stop.

Binds the pod's own address, so that many of them share a port.  Where 80 is closed to this user it
takes 8080.
"""

import http.server
import os
import signal
import socket
import socketserver
import sys

PAGE = b"<!DOCTYPE html>\n<html><head><title>Welcome to nginx!</title></head><body><h1>Welcome to nginx!</h1></body></html>\n"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "nginx"
    sys_version = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(PAGE)

    do_HEAD = do_POST = do_GET


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        # Without the reverse look-up of the original, which may wait for a DNS server that is not
        # there.
        socketserver.TCPServer.server_bind(self)
        self.server_name = str(self.server_address[0])
        self.server_port = int(self.server_address[1])


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGQUIT, lambda *_: os._exit(0))
    address = os.environ.get("HEKLA_POD_IP", "")
    ports = [int(port) for port in sys.argv[1:]] or [80]
    for port in [*ports, *(port + 8000 for port in ports if port < 1024), 0]:
        try:
            server = Server((address, port), Handler)
        except OSError as error:
            print(f"port {port} of {address or 'every address'}: {error.strerror}", flush=True)
            continue
        print(f"listening on {address or '0.0.0.0'}:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    try:
        main()
    except socket.gaierror as error:
        sys.exit(str(error))
