"""HTTP/1.1 of our own, on httptools: one small server and one small client.

Both ends of the local cluster speak through these, thousands of times a second, so what each costs
a request is the figure that decides how large a cluster one machine can carry
(docs/decisions/0020).
"""
