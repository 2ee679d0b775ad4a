"""A request on its way in, its answer on its way out."""
