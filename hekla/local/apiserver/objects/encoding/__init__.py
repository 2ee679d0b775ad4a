"""Decoding of request bodies into JSON trees: JSON, YAML and protobuf."""
