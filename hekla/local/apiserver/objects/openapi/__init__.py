"""OpenAPI documents, made from the tables of kinds."""
