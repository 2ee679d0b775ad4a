"""Filter, score, place: which nodes the pods of one class get."""
