"""`vcctl top`: what queues hold, what is used beside what is requested, and what is free and of no use.
Hekla's own."""
