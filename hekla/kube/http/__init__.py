"""A small HTTP/1.1 server and client on httptools.

All parts of the local cluster talk through them, thousands of times a second, so their cost for
each request decides how large a cluster one machine can run (docs/decisions/0020).
"""
