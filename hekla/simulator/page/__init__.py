"""One page about a simulation, that opens without a network: SVG written by hand, no script."""
