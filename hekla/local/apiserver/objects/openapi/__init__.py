"""OpenAPI documents, made from the table of kinds."""
