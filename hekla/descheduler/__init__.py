"""The descheduler: evicts pods that sit badly, so that the scheduler may place them anew.

It never binds.  Its core (`tables`, `evictor`, `plugins`, `cycle`) is pure: a cycle is a generator of
evictions that hears what became of each.
"""
