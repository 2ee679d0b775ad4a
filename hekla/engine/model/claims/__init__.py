"""Devices that pods claim (dynamic resource allocation): what devices drivers offer, what claims ask
for, and which device who gets.

`pools` reads ResourceSlices, `taintrules` reads DeviceTaintRules, and `slice_tracker` keeps both and
knows which node sees what; `requests` reads ResourceClaims, `extended` makes claims of extended
resources, `search` finds devices for the claims of one pod on one node, and `allocation` writes what
it found as the API has it. `allocator` keeps account of who has what and answers for all nodes.
Reference: plugins-placement 1.6 (DynamicResources).
"""
