"""Virtual time over the engine: a workload and a cluster in, figures out.

The engine decides as in the daemon; here nothing waits for a clock.  What arrives and what ends is an
event, a cycle follows each moment in which something happened, and the same input gives the same
output, byte for byte.
"""
