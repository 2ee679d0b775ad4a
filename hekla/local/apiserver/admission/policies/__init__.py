"""Admission policies: validating and mutating ones, compiled when a request first meets them, found
by resource (local-cluster 6.5, 6.6).

A server without policies asks one boolean a request.
"""
