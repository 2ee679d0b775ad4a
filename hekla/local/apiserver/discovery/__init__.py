"""Discovery, OpenAPI documents, and CustomResourceDefinitions."""
