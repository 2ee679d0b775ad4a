"""Admission policies, validating and mutating, found by resource and compiled at first use
(local-cluster 6.5, 6.6).

A server without policies checks one boolean for each request.
"""
