"""The policy file: what may be written in it, how it is read, and what is wrong with one."""
